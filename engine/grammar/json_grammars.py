"""Lark grammars of texts, rewritten for the inside of JSON strings."""

from __future__ import annotations

import json
import re

import attrs

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.grammar_summary import LINE, TOKEN, summarize_grammar, unused_name
from greenroom.engine.grammar.json_expressions import CannotBeEscaped, ExpressionEscaper

_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": r"(?:\+|-)?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "_EXP": r"[eE](?:\+|-)?[0-9]+",
    "FLOAT": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE](?:\+|-)?[0-9]+)?|[0-9]+[eE](?:\+|-)?[0-9]+",
    "ESCAPED_STRING": r'"(?:[^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"\#[^\n]*",
    "CPP_COMMENT": "//[^\\n]*",
    "C_COMMENT": r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
    "SQL_COMMENT": "--[^\\n]*",
}
_COMMON["NUMBER"] = f"[0-9]+|{_COMMON['FLOAT']}"
_COMMON["SIGNED_FLOAT"] = rf"(?:\+|-)?(?:{_COMMON['FLOAT']})"
_COMMON["SIGNED_NUMBER"] = rf"(?:\+|-)?(?:{_COMMON['NUMBER']})"
"""Terminals that grammars may import from llguidance (`lark/common.rs`)."""

_IMPORT = re.compile(r"%import[ \t]+common[ \t]*(?:\.[ \t]*(\w+)[ \t]*(?:->[ \t]*(\w+))?|\(([\w\s,]*)\))")
_RANGE = re.compile(r'\s*\.\.\s*("(?:\\.|[^"\\\n])*")')
_ATTRIBUTES = re.compile(r"\s*\[")
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})")


@attrs.frozen
class TextGrammar:
    """A client's grammar of a text. `escaped`: grammar of the text inside a JSON string; empty if it cannot
    be rewritten; `characters`: characters below U+0080 that the text may contain; None if unknown.
    """

    lark: str
    escaped: str = ""
    obstacle: str = ""
    characters: frozenset[str] | None = None


def text_grammar(lark: str) -> TextGrammar:
    """Return a grammar for plain text, and the same grammar for text inside a JSON string."""
    try:
        escaped, characters = _Rewriter(lark).rewritten()
    except CannotBeEscaped as error:
        return TextGrammar(lark, obstacle=str(error))
    return TextGrammar(lark, escaped, characters=characters)


class _Rewriter:
    """Rewrites a grammar; terminals become rules, since their parts become sequences of tokens."""

    def __init__(self, lark: str) -> None:
        self._lark = lark
        self._summary = summarize_grammar(lark)
        if self._summary.combining:
            raise CannotBeEscaped("'&' or '~'")
        self._escaper = ExpressionEscaper()
        self._rules: dict[str, str] = {}
        self._starts = {definition.start for definition in self._summary.definitions.values()}
        self._imports = {
            called: terminal
            for line in map(_IMPORT.match, self._summary.imports)
            for terminal, called in (_imported(line) if line else ())
        }
        self._prefix = unused_name("terminal", lark)

    def rewritten(self) -> tuple[str, frozenset[str]]:
        out: list[str] = []
        at = size = 0
        while at < len(self._lark):
            found = TOKEN.match(self._lark, at)
            assert found is not None
            written, at = self._token(found)
            out.append(written)
            size += len(written)
            if size > limits.MAX_ESCAPED_GRAMMAR:
                raise CannotBeEscaped("so many classes of characters")
        return "".join(out), frozenset(self._escaper.characters)

    def _token(self, found: re.Match[str]) -> tuple[str, int]:
        """Return the rewritten form of a token, and the position of the next one."""
        written, end = found.group(), found.end()
        match found.lastgroup:
            case "string":
                return self._string(written, end)
            case "regex":
                return self._escaper.expression(*_parts(written)), end
            case "directive":
                return self._directive(found)
            case "special":
                raise CannotBeEscaped(f"'{written[:80]}'")
            case "name":
                if found.start() in self._starts and _ATTRIBUTES.match(self._lark, end):
                    raise CannotBeEscaped(f"'[' behind '{written}'")
                return self._name(written), end
        return written, end

    def _name(self, name: str) -> str:
        bare = name.lstrip("!?")
        if not bare.lstrip("_")[:1].isupper():
            return name
        return self._rules.setdefault(bare, f"{self._prefix}{len(self._rules)}")

    def _string(self, written: str, end: int) -> tuple[str, int]:
        text = _decoded(written)
        if other := _RANGE.match(self._lark, end):
            last = _decoded(other.group(1))
            if len(text) != 1 or len(last) != 1:
                raise CannotBeEscaped(f"the range from {text[:40]!r} to {last[:40]!r}")
            return self._escaper.range(text, last), other.end()
        if written.endswith("i"):
            return self._escaper.expression(re.escape(text), "i"), end
        return f"({self._escaper.text(text)})", end

    def _directive(self, found: re.Match[str]) -> tuple[str, int]:
        if found.group() == "%ignore":
            line = LINE.match(self._lark, found.end())
            assert line is not None
            return f"%ignore {self._ignored(line.group())}", line.end()
        imported = _IMPORT.match(self._lark, found.start())
        if imported is None:
            raise CannotBeEscaped(f"'{found.group()}'")
        lines = []
        for terminal, called in _imported(imported):
            if terminal not in _COMMON:
                raise CannotBeEscaped(f"'common.{terminal}'")
            lines.append(f"{self._name(called)}: {self._escaper.expression(_COMMON[terminal])}")
        return "\n".join(lines), imported.end()

    def _ignored(self, expression: str) -> str:
        """Return an ignored expression as one token; it must be a single terminal."""
        expression = expression.partition("//")[0].strip()
        if expression in self._summary.definitions:
            definition = self._summary.definitions[expression]
            source = self._lark[definition.start : definition.end]
            expression = source.partition(":")[2].strip()
        if (imported := self._imports.get(expression)) in _COMMON:
            return self._escaper.one_token(_COMMON[imported])
        found = TOKEN.match(expression)
        if found is None or expression[found.end() :].strip("+* \t"):
            raise CannotBeEscaped(f"what is ignored, {expression[:80]!r},")
        if found.lastgroup == "string":
            return self._escaper.one_token(re.escape(_decoded(found.group())))
        if found.lastgroup == "regex":
            return self._escaper.one_token(*_parts(found.group()))
        raise CannotBeEscaped(f"what is ignored, {expression[:80]!r},")


def _imported(found: re.Match[str]) -> list[tuple[str, str]]:
    name, alias, names = found.groups()
    return [(name, alias or name)] if name else [(one, one) for one in re.findall(r"\w+", names)]


def _parts(regex: str) -> tuple[str, str]:
    body, _, flags = regex[1:].rpartition("/")
    return body.replace("\\/", "/"), flags


def _decoded(written: str) -> str:
    try:
        return str(json.loads(_HEX.sub(r"\\u00\1", written.removesuffix("i"))))
    except ValueError:
        raise CannotBeEscaped(f"the string {written[:80]}") from None
