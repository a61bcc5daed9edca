"""Lark grammars and regular expressions with hidden costs."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.tests.attack.requests.json_pieces import Maker


def _lines(*parts: str) -> str:
    return "\n".join(parts) + "\n"


GRAMMARS: Mapping[str, Maker] = {
    "rule_chain": lambda n: _lines(
        "start: r0", *(f"r{i}: r{i + 1}" for i in range(n)), f'r{n}: "x" | "y" r{n}'
    ),
    "terminal_chain": lambda n: _lines("start: T0", *(f'T{i}: "x" T{i + 1}' for i in range(n)), f'T{n}: "y"'),
    "doubling_rules": lambda n: _lines(
        "start: r0", *(f"r{i}: r{i + 1} r{i + 1}" for i in range(min(n, 60))), f'r{min(n, 60)}: "x"'
    ),
    "ambiguous": lambda n: _lines("start: a", "a: " + " | ".join(["a a"] * min(n, 200)) + ' | "x" | "xx"'),
    "ambiguous_classes": lambda n: _lines(
        "start: a",
        "a: a a | " + " | ".join(f"/[a-{chr(98 + i % 24)}]{{1,{1 + i % 7}}}/" for i in range(min(n, 500))),
    ),
    "palindromes": lambda n: _lines(
        "start: p",
        "p: "
        + " | ".join(f'"{chr(97 + i)}" p "{chr(97 + i)}"' for i in range(min(n, 26)))
        + ' | "" | p p | /[a-z]/',
    ),
    "alternatives": lambda n: _lines(
        "start: " + " | ".join(f'"word{i} "' for i in range(n)) + " | start start"
    ),
    "intersections": lambda n: _lines(
        "start: T", "T: " + " & ".join(f"/(.*[a-{chr(98 + i % 24)}]){{{1 + i % 5}}}.*/" for i in range(n))
    ),
    "nested_groups": lambda n: _lines("start: " + "(" * n + '"x"' + ")*" * n),
    "long_literal": lambda n: _lines(f'start: "{"x" * n}"'),
    "repeats": lambda n: _lines(f'start: ("x" | "xy"){{0,{n}}} ("y" | "yx"){{0,{n}}}'),
    "nullable": lambda n: _lines(
        "start: " + " ".join(f"n{i}" for i in range(n)), *(f'n{i}: "x"?' for i in range(n))
    ),
    "embedded_schema": lambda n: _lines(
        'start: %json { "type": "array", "items": { "type": "string", "minLength": ' + str(n) + " } }"
    ),
    "left_recursion": lambda _: _lines('start: start "x" | start "xx" |'),
    "endless": lambda _: _lines("start: start"),
}
"""Makers of values of `guided_grammar`."""

PATTERNS: Mapping[str, Maker] = {
    "groups": lambda n: "(" * n + "a" + ")*" * n,
    "counted": lambda n: f"(a?){{{n}}}a{{{n}}}",
    "nested_counts": lambda n: f"((a{{0,{n}}}){{0,{n}}}){{0,{n}}}",
    "any_of_words": lambda n: "|".join(f"word{i}" for i in range(n)),
    "any_then": lambda n: ".*a" * n,
    "far_back": lambda n: f"(a|b)*a(a|b){{{min(n, 3000)}}}",
    "unicode": lambda n: r"[\p{L}\P{N}]" * n,
    "long_text": lambda n: "a" * n,
    "unfinished": lambda n: "(" * n,
    "look_behind": lambda n: "(?<=a)" * n + "b",
}
"""Makers of values of `guided_regex`."""
