"""What a class of characters matches, as far as JSON strings treat characters in their own way."""

from __future__ import annotations

import json
from functools import lru_cache

import attrs
import numpy as np

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.vocabulary.c_interface import GrammarMatcher
from greenroom.engine.grammar.vocabulary.single_bytes import END, single_bytes

ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
"""Characters with an escape of their own, by what follows the backslash."""


class CannotBeEscaped(Exception):
    """What stands in an expression cannot be written inside a JSON string; the message names it."""


@attrs.frozen
class CharacterClass:
    """Which characters a class matches, as far as JSON treats them in their own way.

    Args:
        escaped: Those of them that JSON escapes.
        plain: It matches others, too.
        ascii: Those of them below U+0080.
    """

    escaped: tuple[str, ...]
    plain: bool
    ascii: frozenset[str]


@lru_cache(maxsize=1_024)
def character_class(expression: str) -> CharacterClass:
    """Return what a class matches.

    Args:
        expression: It, in brackets, or with flags around it.

    Raises:
        CannotBeEscaped: llguidance cannot read it.
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
    """Return an expression as Lark writes it."""
    return f"/{expression.replace('/', chr(92) + '/')}/"
