"""One-line chat templates that take all of a machine's memory or time."""

from __future__ import annotations

from collections.abc import Mapping

_LONG = "{% set s = 'a' * 1000000 %}"


def _doubled(start: str, twice: str, end: str) -> str:
    """Return a template that doubles a value 60 times by nesting it in itself."""
    loop = "{% for i in range(60) %}{% set ns.l = " + twice + " %}{% endfor %}"
    return "{% set ns = namespace(l=" + start + ") %}" + loop + end


def _repeated(times: int, what: str, end: str = "") -> str:
    return "{% for i in range(" + str(times) + ") %}" + what + "{% endfor %}" + end


_LIST = "{% set ns = namespace(l=[]) %}"

STOPPED: Mapping[str, str] = {
    "times": "{{ 'a' * 2000000000 }}",
    "times a list": "{{ ([0] * 2000000000)|length }}",
    "times a safe text": "{{ ('a'|safe) * 999999999 }}",
    "large number": "{{ 2 ** 999999999 }}",
    "large numbers": "{{ (2 ** 60000) * (2 ** 60000) * 2 }}",
    "number of a long text": "{{ ('f' * 900000)|int(base=16) }}",
    "percent": "{{ '%0999999999d' % 1 }}",
    "percent with a star": "{{ '%*d' % (999999999, 1) }}",
    "percent with a precision": "{{ '%.999999999f' % 1 }}",
    "percent of bytes": "{{ 'x%0999999999d'.encode() % 1 }}",
    "percent many times": _LONG + "{{ ('%(a)s' * 10000) % {'a': s} }}",
    "added to itself": _doubled("'abcd'", "ns.l + ns.l", ""),
    "joined to itself": _doubled("'abcd'", "ns.l ~ ns.l", ""),
    "joined often": _LONG + "{{ " + " ~ ".join(["s"] * 300) + " }}",
    "center": "{{ 'a'|center(999999999) }}",
    "center by map": "{{ ['a']|map('center', 999999999)|list }}",
    "center by attr": "{{ ('a'|attr('center'))(999999999) }}",
    "center in a loop": _repeated(3, "{{ 'a'.center(999999999) }}"),
    "center a safe text": "{{ ('a'|safe).center(999999999) }}",
    "ljust": "{{ 'a'.ljust(999999999) }}",
    "rjust": "{{ 'a'.rjust(999999999) }}",
    "zfill": "{{ 'a'.zfill(999999999) }}",
    "expandtabs": "{{ '\t'.expandtabs(999999999) }}",
    "indent": "{{ 'a\nb'|indent(999999999) }}",
    "indent a block": "{% filter indent(999999999) %}a\nb{% endfilter %}",
    "wordwrap": _LONG + "{{ s|wordwrap(1, true, s) }}",
    "format": "{{ '%0999999999d'|format(1) }}",
    "method format": "{{ '{:999999999}'.format(1) }}",
    "method format, width by name": "{{ '{:{w}}'.format(1, w=999999999) }}",
    "method format many times": _LONG + "{{ ('{0}' * 10000).format(s) }}",
    "method format_map": "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "replace": _LONG + "{{ s|replace('a', s) }}",
    "method replace": _LONG + "{{ s.replace('a', s) }}",
    "replace nothing": _LONG + "{{ s.replace('', s) }}",
    "join": _LONG + "{{ range(99999)|join(s) }}",
    "method join": _LONG + "{{ s.join('a' * 1000) }}",
    "method join of keys": _LONG + "{{ s.join(dict.fromkeys('abcdefghijklmnop').keys()) * 9 }}",
    "join a safe text": _LONG + "{{ (s|safe).join('a' * 1000) }}",
    "translate": _LONG + "{{ s.translate({97: s}) }}",
    "slow codec": _LONG + "{{ s.encode('punycode') }}",
    "names of characters": "{{ ('\u20ac' * 900000).encode('ascii', 'namereplace')|length }}",
    "to_bytes": "{{ (1).to_bytes(999999999, 'big') }}",
    "split": _LONG + "{{ s.split('a')|length }}",
    "list of a text": _LONG + "{{ (s|list)|length }}",
    "sum of lists": "{% set l = [0] * 9999 %}{{ ([l] * 9999)|sum(start=[])|length }}",
    "batch": "{{ [1]|batch(999999999, 'x')|list }}",
    "slice": "{{ [1]|slice(999999999)|list }}",
    "round up": "{{ 1|round(999999999, 'ceil') }}",
    "round down": "{{ 5|round(-999999999) }}",
    "tojson with an indent": "{{ {'a': 1}|tojson(indent=999999999) }}",
    "tojson with separators": _LONG + "{{ ([1] * 9999)|tojson(separators=(s, s)) }}",
    "pprint": "{{ (['a b ' * 100] * 2000)|pprint }}",
    "urlize": "{{ ('http://a.b ' * 90000)|urlize(rel='x' * 100000) }}",
    "escaped again": "{% set ns = namespace(s='&' * 90000) %}"
    + _repeated(99, "{% set ns.s = ns.s|forceescape %}"),
    "lipsum": "{{ lipsum(n=999999999) }}",
    "date": "{{ strftime_now('%c' * 100000) }}",
    "nested lists, as text": _doubled("['x']", "[ns.l, ns.l]", "{{ ns.l }}"),
    "nested lists, compared": _doubled("['x']", "[ns.l, ns.l]", "{{ ns.l == [ns.l, ns.l] }}"),
    "nested tuples, as a key": _doubled("('x',)", "(ns.l, ns.l)", "{{ {ns.l: 1} }}"),
    "nested dicts, as JSON": _doubled("{}", "{'a': ns.l, 'b': ns.l}", "{{ ns.l|tojson }}"),
    "nested dicts by function": _doubled("{}", "dict(a=ns.l, b=ns.l)", "{{ ns.l|tojson }}"),
    "nested lists, multiplied": "{% set ns = namespace(l=['x']) %}"
    + _repeated(9, "{% set ns.l = [ns.l] * 10000 %}"),
    "kept slices": _LONG + _LIST + _repeated(99999, "{% set ns.l = ns.l + [s[i:]] %}"),
    "kept texts": _LIST + _repeated(99999, "{% set ns.l = ns.l + ['x' * 200 ~ i] %}"),
    "linked lists": _LIST + _repeated(99999, "{% set ns.l = [ns.l, 'x' * 200 ~ i] %}"),
    "linked namespaces": _LIST
    + _repeated(99999, _repeated(20, "{% set ns.l = namespace(l=ns.l, s='x' * 200 ~ i) %}")),
    "long output": _LONG + _repeated(99999, "{{ s }}"),
    "long block": _LONG + "{% set x %}" + _repeated(99999, "{{ s }}", "{% endset %}"),
    "loops": _repeated(99999, _repeated(99999, _repeated(99999, "x"))),
    "empty loops": _repeated(99999, _repeated(99999, "")),
    "loops that leave all out": _repeated(99999, "{% for a in range(99999) if false %}{% endfor %}"),
    "loops in a filter": _repeated(99999, "{{ range(99999)|sum }}"),
    "macros that call themselves": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
}
"""Templates by name. Without limits, each would end the process or keep it busy for hours."""

BY_CONTENT = "{% for message in messages %}{{ message.content.center(message.content|int(1)) }}{% endfor %}"
"""A template that allocates as many characters as the message's text says."""
