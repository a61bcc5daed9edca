"""Regular expressions rewritten to match the escaped text inside JSON strings.

Escaping works character by character and no escape is a prefix of another, so sequences, alternatives,
repeats and intersections keep their meaning over escaped text. Only the parts that match single characters
change. The dialect is that of Rust's `regex`, as llguidance reads it.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

import attrs
import numpy as np

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.c_interface import GrammarMatcher
from greenroom.engine.grammar.grammar_tokenizer import END, single_bytes

_NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_HEX = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,6})\})")
_UNICODE_CLASS = re.compile(r"\\[pP](?:\{[^{}]*\}|.)")
_CLASS_ESCAPE = re.compile(r"\\[dDwWsS]")
_REPEAT = re.compile(r"[*+?]|\{ *[0-9]+ *(?:, *[0-9]* *)?\}")
_BEGINS_ESCAPED = re.compile(r'"|\\["\\nrtf]')
LINE_BREAKS = (r"(?:\r?\n)+", r"(\r?\n)+", r"\r?\n")
_GROUP = re.compile(r"\((?:\?P?<[A-Za-z_][\w.]*>|\?(?P<flags>[a-zA-Z]*(?:-[a-zA-Z]+)?)(?P<end>[:)]))?(?!\?)")
_KNOWN_FLAGS = frozenset("isumU")


class ExpressionEscaper:
    """Rewrites texts and expressions, and records the characters they may match.

    An expression that matches escapes becomes a sequence of short tokens: llguidance's lexer takes the
    longest token and looks one byte ahead, and that byte is a backslash before any escape.

    Attributes:
        characters: Characters below U+0080 that some expression or text may contain.
    """

    def __init__(self) -> None:
        self.characters: set[str] = set()
        self._classes = 0
        self._escapes = False  # True if the expression may match an escaped character.
        self._expression = ""
        self._at = 0
        self._flags = [""]

    def text(self, text: str) -> str:
        self.characters.update(text)
        return " ".join(map(_quoted, _split(text))) or '""'

    def expression(self, expression: str, flags: str = "") -> str:
        """Return a regular expression as a Lark expression. Raises CannotBeEscaped: A part matches no
        characters or is not supported.
        """
        self._expression, self._at = expression, 0
        self._flags = [self._changed("", flags)]
        self._escapes = False
        out: list[str] = []
        empty = True  # True while the current alternative has no parts.
        while self._at < len(expression):
            part = self._next()
            empty_branch = empty and part in ("|", ")")
            empty = part in ("|", "(")
            out += ['""', part] if empty_branch else [part]
        if not self._escapes:
            return as_terminal(expression) + flags
        return f"({' '.join([*out, chr(34) * 2] if empty else out)})"

    def one_token(self, expression: str, flags: str = "") -> str:
        """Return the repeated part of an ignored expression as a single token. Raises CannotBeEscaped: the
        expression does not repeat one character class or a line break.
        """
        if expression in LINE_BREAKS:
            return r"/(?:\\r)?\\n/"
        part = self.expression(expression, flags)
        if not self._escapes:
            return part
        self._expression, self._at = expression.rstrip("+*"), 0
        written = self._class_text() or re.escape(self._character())
        if self._at < len(self._expression):
            raise CannotBeEscaped(f"what is ignored, {expression[:80]!r},")
        return self._class(written if written.startswith("[") else f"[{written}]", "+")

    def range(self, first: str, last: str) -> str:
        self._flags = [""]
        return self._class(f"[\\x{{{ord(first):x}}}-\\x{{{ord(last):x}}}]", "")

    def _next(self) -> str:
        character = self._expression[self._at]
        match character:
            case "(":
                return self._group()
            case ")":
                self._at += 1
                if len(self._flags) > 1:
                    self._flags.pop()
                return ")" + self._repeat()
            case "|":
                self._at += 1
                return "|"
        written = self._class_text()
        if written:
            return self._repeated_class(written)
        return self._literal(self._character()) + self._repeat()

    def _class_text(self) -> str:
        expression, at = self._expression, self._at
        if expression[at] == ".":
            self._at += 1
            return r"[\x00-\x{10FFFF}]" if "s" in self._flags[-1] else r"[^\n]"
        if expression[at] == "[":
            self._at = _class_end(expression, at)
            return expression[at : self._at]
        if expression[at] != "\\":
            return ""
        found = _UNICODE_CLASS.match(expression, at) or _CLASS_ESCAPE.match(expression, at)
        self._at = found.end() if found else at
        return f"[{found.group()}]" if found else ""

    def _repeated_class(self, written: str) -> str:
        repeat = self._repeat()
        # A run of characters may be one token if none of them could belong to the text after it.
        rest = self._expression[self._at :]
        alone = not rest.strip(")") or (len(self._flags) == 1 and _BEGINS_ESCAPED.match(rest))
        run = "+" if repeat in ("*", "+") and alone else ""
        return self._class(written, run) + repeat

    def _repeat(self) -> str:
        """Return the repeat at the current position; drop laziness, which does not change the matches."""
        found = _REPEAT.match(self._expression, self._at)
        if found is None:
            return ""
        self._at = found.end()
        following = self._expression[self._at : self._at + 1]
        if following == "?":
            self._at += 1
        elif following and following in "+*{":
            raise CannotBeEscaped(f"{found.group() + following!r}")
        return found.group().replace(" ", "")

    def _character(self) -> str:
        expression, at = self._expression, self._at
        character = expression[at]
        if character != "\\":
            if character in "^$*+?{":
                raise CannotBeEscaped(f"'{character}'")
            self._at += 1
            return character
        letter = expression[at + 1 : at + 2]
        if found := _HEX.match(expression, at):
            self._at = found.end()
            code = int(next(filter(None, found.groups())), 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise CannotBeEscaped(f"{found.group()!r}")
            return chr(code)
        if letter not in _NAMED and (not letter or letter.isalnum() or letter in "<>"):
            raise CannotBeEscaped(f"'\\{letter}'")
        self._at += 2
        return _NAMED.get(letter, letter)

    def _group(self) -> str:
        found = _GROUP.match(self._expression, self._at)
        if found is None:
            raise CannotBeEscaped(f"{self._expression[self._at : self._at + 4]!r}")
        self._at = found.end()
        changed = self._changed(self._flags[-1], found["flags"] or "")
        if found["end"] == ")":
            self._flags[-1] = changed
            return '""'
        self._flags.append(changed)
        return "("

    def _changed(self, flags: str, change: str) -> str:
        """Return the flags after an inline change such as `i-s`, which sets `i` and unsets `s`."""
        on, _, off = change.partition("-")
        if not (set(on) | set(off)) <= _KNOWN_FLAGS or "u" in off:
            raise CannotBeEscaped(f"the flags {change!r}")
        return "".join((set(flags) | set(on)) - set(off))

    def _class(self, written: str, run: str) -> str:
        """Return a class as a Lark expression of one plain character or one escape. `run`: `+` if several
        characters in a row may be one token.
        """
        self._classes += 1
        if self._classes > limits.MAX_ESCAPED_CLASSES:
            raise CannotBeEscaped(f"more than {limits.MAX_ESCAPED_CLASSES:,} classes")
        ignores_case = "i" in self._flags[-1]
        members = character_class(f"(?i:{written})" if ignores_case else written)
        self.characters |= members.ascii
        self._escapes |= bool(members.escaped)
        parts = []
        if members.plain:
            plain = rf'[{written}--["\\\x00-\x1F]]{run}'
            parts.append(f"(?i:{plain})" if ignores_case else plain)
        if short := "".join(re.escape(ESCAPES[one]) for one in members.escaped if one in ESCAPES):
            parts.append(rf"\\[{short}]")
        if not parts:  # Long escapes are only for grammars without a choice, as when JSON itself is written.
            parts = [re.escape(_escape(one)) for one in members.escaped]
        if not parts:
            raise CannotBeEscaped(f"the class {written[:80]!r}, which is empty,")
        return as_terminal("|".join(parts))

    def _literal(self, character: str) -> str:
        self.characters.add(character)
        self._escapes |= _escape(character) != character
        if "i" in self._flags[-1] and character.upper() != character.lower():
            self.characters |= {character.upper(), character.lower()}
            return as_terminal(f"(?i:{character})")
        return _quoted(_escape(character))


def _class_end(expression: str, at: int) -> int:
    depth = 0
    while at < len(expression):
        character = expression[at]
        at += 2 if character == "\\" else 1
        if character == "[":
            depth += 1
            at += expression.startswith("^", at)
            at += expression.startswith("]", at)
        elif character == "]":
            depth -= 1
            if not depth:
                return at
    raise CannotBeEscaped("a class that is never closed")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _split(text: str) -> list[str]:
    """Return an escaped text in pieces, each either one escape or text without escapes."""
    pieces: list[str] = []
    plain = False
    for character in text:
        escaped = _escape(character)
        if plain and escaped == character:
            pieces[-1] += character
        else:
            pieces.append(escaped)
        plain = escaped == character
    return pieces


def _escape(character: str) -> str:
    if character in ESCAPES:
        return "\\" + ESCAPES[character]
    return f"\\u{ord(character):04x}" if character < " " else character


ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
"""Characters with a short JSON escape, with the letter behind the backslash."""


class CannotBeEscaped(Exception):
    """Part of an expression that cannot be rewritten for a JSON string; the message names it."""


@attrs.frozen
class CharacterClass:
    """The characters that a class matches, grouped by their form in JSON strings. `plain`: True if the class
    also matches characters that JSON does not escape; `ascii`: matched characters below U+0080.
    """

    escaped: tuple[str, ...]
    plain: bool
    ascii: frozenset[str]


@lru_cache(maxsize=1_024)
def character_class(expression: str) -> CharacterClass:
    """Return the matches of a character class. Raises CannotBeEscaped: llguidance cannot parse the class."""
    lark = f"start: {as_terminal(expression)}"
    grammar = json.dumps({"grammars": [{"lark_grammar": lark}]})
    matcher = GrammarMatcher.compile(single_bytes(), grammar, limits.parser_limits(limits.GRAMMAR_FUEL))
    words = np.zeros(-(-(END + 1) // 32), np.uint32)
    if not matcher.is_error():
        matcher.compute_mask(words)
    if matcher.is_error():
        raise CannotBeEscaped(f"the class {expression[:80]!r}")
    first = [byte for byte in range(END) if words[byte // 32] >> (byte % 32) & 1]
    escaped = tuple(chr(byte) for byte in first if byte < 0x20 or chr(byte) in ESCAPES)
    plain = any(byte >= 0x20 and chr(byte) not in ESCAPES for byte in first)
    return CharacterClass(escaped, plain, frozenset(chr(byte) for byte in first if byte < 0x80))


def as_terminal(expression: str) -> str:
    return f"/{expression.replace('/', chr(92) + '/')}/"
