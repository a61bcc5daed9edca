"""Finds out at a bounded price whether intersected terminals can be compiled.

llguidance computes the first byte of each terminal without a limit: whether anything can follow it under an
intersection or a negation may take for ever to find out (100 characters are enough). Behind a byte that
comes before them the same terminals are looked at under its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from greenroom.engine.grammar.cost import limits
from greenroom.schemas.problems import invalid

_END = 256
_PREFIX = "\\u0001"


class _Bytes:
    """A vocabulary of all single bytes."""

    eos_token_id = _END
    bos_token_id = None
    special_token_ids = (_END,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _tokenizer() -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()))


def probe_terminals(definitions: str, names: Sequence[str], param: str) -> None:
    """Refuse terminals that cannot be compiled within llguidance's limits.

    Args:
        definitions: Lark definitions of all that they refer to.
        names: The terminals, or expressions of terminals.
        param: Where the request holds them.

    Raises:
        ProblemError: 400 that names the field.
    """
    from llguidance import LLMatcher

    prefix = "PROBE"
    while prefix in definitions:
        prefix += "X"
    probes = [f'{prefix}-{index}: "{_PREFIX}" ({name})' for index, name in enumerate(names)]
    start = "start: " + " | ".join(f"{prefix}-{index}" for index in range(len(names)))
    grammar = "\n".join([definitions, *probes, start, ""])
    matcher = LLMatcher(_tokenizer(), grammar, log_level=0, limits=limits.parser_limits(limits.GRAMMAR_FUEL))
    if not matcher.is_error() and matcher.consume_token(1):
        matcher.compute_bitmask()
    # Terminals that nothing matches are harmless, and refused when they are compiled in earnest.
    error = matcher.get_error() if matcher.is_error() else ""
    if error and not error.startswith("NoExtensionBias"):
        detail = f"What '&' and '~' combine cannot be compiled: {error.split(chr(10))[0][:300]}"
        raise invalid(detail, param, "unsupported_grammar")
