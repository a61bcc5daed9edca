"""A vocabulary of all single bytes, for checks of a grammar that do not depend on a model."""

from __future__ import annotations

from functools import cache

from greenroom.engine.grammar.vocabulary.c_interface import TokenTrie

END = 256
"""Id of the token that ends a text, after those of the bytes."""


@cache
def single_bytes() -> TokenTrie:
    """Return the vocabulary of all single bytes and an end token."""
    return TokenTrie([*(bytes([byte]) for byte in range(256)), b"<end>"], {END}, [END])
