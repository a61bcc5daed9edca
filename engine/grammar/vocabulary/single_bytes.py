"""A vocabulary of all single bytes, for what is asked of a grammar whatever the model."""

from __future__ import annotations

from functools import cache

from greenroom.engine.grammar.vocabulary.c_interface import TokenTrie

END = 256
"""Token that ends a text, behind those of the bytes."""


@cache
def single_bytes() -> TokenTrie:
    """Return the vocabulary."""
    return TokenTrie([*(bytes([byte]) for byte in range(256)), b"<end>"], {END}, [END])
