"""JSON Schema's regular expressions (ECMA-262), rewritten so that all validators agree on matches.

Dialects differ in the meaning of `.`, `\\w`, `\\d`, `\\s` and their opposites. A constrained answer must
validate everywhere, so each is narrowed to what ECMA-262 and Python's `re` both accept.
"""

from __future__ import annotations

import re

import attrs

from greenroom.engine.grammar.limits import MAX_PATTERN
from greenroom.schemas.problems import MAX_PARAM, invalid

_NARROW = {"d": "0-9", "w": "A-Za-z0-9_", "s": r" \t\n\r\f\v"}
_WIDE = {"d": r"\p{Nd}", "w": r"\p{L}\p{M}\p{N}\p{Pc}", "s": r"\s\x1c-\x1f\x{85}\x{feff}"}
"""Characters that some dialect counts as digits, word characters or white space."""

_ANY = r"[^\n\r\x{2028}\x{2029}]"
_REPEAT = re.compile(r"\{\d{1,5}(,\d{0,5})?\}")
_NAMED_GROUP = re.compile(r"\(\?P?<[A-Za-z_]\w*>")
_SET = re.compile(r"\\[dDwWsSpP]")
_ESCAPES = {"n": r"\n", "r": r"\r", "t": r"\t", "f": r"\f", "v": r"\v", "0": r"\x00"}


class _PatternRewriter:
    def __init__(self, pattern: str, param: str) -> None:
        self._pattern, self._param = pattern, param
        self._at = 0

    def rewrite(self) -> str:
        out: list[str] = []
        while self._at < len(self._pattern):
            out.append(self._next())
        return "".join(out)

    def _next(self) -> str:
        char = self._pattern[self._at]
        if char == "\\":
            return self._escape()
        if char == "[":
            return self._class()
        if char == "(":
            return self._group()
        if char == "{":
            return self._braces()
        self._at += 1
        if char in "*+?":
            return char + self._after_repeat()
        return {".": _ANY, "}": r"\}", "]": r"\]", "#": r"\#", "/": r"\/"}.get(char, char)

    def _refuse(self, what: str) -> Exception:
        detail = f"{what} cannot be honoured in a regular expression: {shown(self._pattern)!r}"
        return invalid(detail, self._param)

    def _after_repeat(self) -> str:
        """Drop laziness, which does not change the matched set, and refuse possessive repeats."""
        following = self._pattern[self._at : self._at + 1]
        if following == "+":
            raise self._refuse("A possessive repeat")
        if following == "?":
            self._at += 1
        return ""

    def _group(self) -> str:
        if not self._pattern.startswith("(?", self._at):
            self._at += 1
            return "(?:"
        named = _NAMED_GROUP.match(self._pattern, self._at)
        if named:
            self._at = named.end()
            return "(?:"
        if self._pattern.startswith("(?:", self._at):
            self._at += 3
            return "(?:"
        raise self._refuse(f"'{self._pattern[self._at : self._at + 3]}' (look-around or a flag)")

    def _braces(self) -> str:
        repeat = _REPEAT.match(self._pattern, self._at)
        if repeat:
            self._at = repeat.end()
            return repeat.group() + self._after_repeat()
        if re.compile(r"\{,?\d").match(self._pattern, self._at):
            raise self._refuse("This repeat, which dialects read differently,")
        self._at += 1
        return r"\{"

    def _escape(self) -> str:
        letter = self._pattern[self._at + 1 : self._at + 2]
        if letter in {"b", "B"} or (letter.isdigit() and letter != "0") or letter == "k":
            raise self._refuse(f"'\\{letter}' (a look-around or a back-reference)")
        if letter.lower() in _NARROW:
            self._at += 2
            return f"[{_NARROW[letter]}]" if letter.islower() else f"[^{_WIDE[letter.lower()]}]"
        return self._character()

    def _character(self) -> str:
        """Return one escaped character, inside or outside a class."""
        letter = self._pattern[self._at + 1 : self._at + 2]
        if letter in {"p", "P"}:
            found = re.compile(r"\\[pP]\{[\w=]+\}").match(self._pattern, self._at)
        elif letter in {"x", "u"}:
            found = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})").match(self._pattern, self._at)
        elif letter in _ESCAPES:
            self._at += 2
            return _ESCAPES[letter]
        elif letter and not letter.isalnum():
            self._at += 2
            plain = not letter.isascii() or letter.isspace() or letter in "<>"  # `\<` begins a word in Rust.
            return letter if plain else "\\" + letter
        else:
            found = None
        if found is None:
            raise self._refuse(f"'\\{letter}'")
        self._at = found.end()
        return found.group()

    def _class(self) -> str:
        self._at += 1
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        out: list[str] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != "]":
            out.append(self._atoms(negated))
        if self._at >= len(self._pattern):
            raise self._refuse("A class that is never closed")
        self._at += 1
        if not out:
            raise self._refuse("An empty class")
        return f"[{'^' if negated else ''}{''.join(out)}]"

    def _atoms(self, negated: bool) -> str:
        """Return the next atom of a class, or two with a dash between: beside a set, a dash is one itself."""
        first = _SET.match(self._pattern, self._at)
        written = self._member(negated)
        following = self._pattern[self._at : self._at + 2]
        if not following.startswith("-") or following in ("-", "-]"):
            return written
        self._at += 1
        dash = r"\-" if first or _SET.match(self._pattern, self._at) else "-"
        return written + dash + self._member(negated)

    def _member(self, negated: bool) -> str:
        char = self._pattern[self._at]
        if char != "\\":
            self._at += 1
            return "\\" + char if char in "[&~#/-" else char
        letter = self._pattern[self._at + 1 : self._at + 2]
        if letter.lower() in _NARROW:
            self._at += 2
            sets = _WIDE if negated else _NARROW
            if letter.islower():
                return sets[letter]
            opposite = _NARROW if negated else _WIDE
            return f"[^{opposite[letter.lower()]}]"
        if letter == "b":
            self._at += 2
            return r"\x08"
        return self._character()


def portable_pattern(pattern: str, param: str) -> str:
    """Return the expression in the dialect of Rust's `regex`, matching only what all dialects match.

    Args:
        pattern: ECMA-262 regular expression, searched for as JSON Schema does.

    Raises:
        ProblemError: 400 for look-arounds, back-references and other parts that no grammar can enforce.
    """
    if len(pattern) > MAX_PATTERN:
        raise invalid(f"A regular expression may have at most {MAX_PATTERN} characters", param)
    return _PatternRewriter(pattern, param).rewrite()


def count_classes(pattern: str) -> int:
    """Return a lower bound on the branches of the expression's derivative: its classes plus one."""
    return 1 + pattern.count("[") + pattern.count("\\p") + pattern.count("\\P")


_UNICODE_CLASS = re.compile(r"\\[pPwWdDsS]")
_IGNORES_CASE = re.compile(r"\(\?[a-hj-zA-Z-]*i|/[a-hj-z]*i[a-z]*$")  # linear in the expression's length
_STEPS_OF_A_UNICODE_CLASS = 10
_STEPS_WITHOUT_CASE = 100
"""Estimated steps to parse a Unicode class, without and with case folding of its hundreds of ranges."""


def steps_to_parse(pattern: str) -> int:
    """Estimate the steps to parse an expression's Unicode classes, which llguidance does not count."""
    steps = _STEPS_WITHOUT_CASE if _IGNORES_CASE.search(pattern) else _STEPS_OF_A_UNICODE_CLASS
    return steps * len(_UNICODE_CLASS.findall(pattern))


_MAX_VALUE = 80  # Limit on the characters of a name or value in an error


@attrs.frozen(eq=False)
class JsonPath:
    """A path as a linked chain of segments, so that nested paths share long names."""

    segment: str
    parent: JsonPath | None = None

    def key(self, name: str) -> JsonPath:
        """Return the place of an object's entry."""
        return JsonPath("." + name, self)

    def item(self, index: int) -> JsonPath:
        """Return the place of an array's item."""
        return JsonPath(f"[{index}]", self)

    def __str__(self) -> str:
        segments: list[str] = []
        path: JsonPath | None = self
        while path is not None:
            segments.append(_shortened(path.segment, _MAX_VALUE))
            path = path.parent
        return _printable(_shortened("".join(reversed(segments)), MAX_PARAM))


def shown(value: object) -> str:
    """Return a value of the request for an error, shortened."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number of more than 77 digits"
    text = value if isinstance(value, str) else repr(value)
    return _printable(_shortened(text, _MAX_VALUE))


def _printable(text: str) -> str:
    """Return the text without lone surrogates, which no response can carry."""
    return text.encode(errors="replace").decode()


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}…{text[1 - (length - length // 2) :]}"
