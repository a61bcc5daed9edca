"""Matches of a character class, with regard to JSON's escaping of characters."""

from __future__ import annotations

import json
from functools import lru_cache

import attrs
import numpy as np

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.vocabulary.c_interface import GrammarMatcher
from greenroom.engine.grammar.vocabulary.single_bytes import END, single_bytes

ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
"""Characters with a short JSON escape, with the letter behind the backslash."""


class CannotBeEscaped(Exception):
    """Part of an expression that cannot be rewritten for a JSON string; the message names it."""


@attrs.frozen
class CharacterClass:
    """The characters that a class matches, grouped by their form in JSON strings.

    Args:
        escaped: Matched characters that JSON escapes.
        plain: True if the class also matches characters that JSON does not escape.
        ascii: Matched characters below U+0080.
    """

    escaped: tuple[str, ...]
    plain: bool
    ascii: frozenset[str]


@lru_cache(maxsize=1_024)
def character_class(expression: str) -> CharacterClass:
    """Return the matches of a character class.

    Args:
        expression: Class in brackets, or with flags around it.

    Raises:
        CannotBeEscaped: llguidance cannot parse the class.
    """
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
