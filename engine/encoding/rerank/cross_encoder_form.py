"""Pairs as cross-encoders read them: as their tokenizer puts special tokens around two texts."""

from __future__ import annotations

import numpy as np

from greenroom.engine.encoding.rerank.pair_tokens import PlainEncoder
from greenroom.engine.encoding.rows import Tokens
from greenroom.schemas.problems import invalid


class CrossEncoderForm:
    """`[CLS] query [SEP] document [SEP]`, or whatever the tokenizer's template for pairs says.

    Args:
        types: Kinds of tokens that the model tells apart.
    """

    def __init__(self, encoder: PlainEncoder, types: int) -> None:
        self._encoder = encoder
        pair = encoder.backend.encode_batch([("a", "b")], add_special_tokens=True)[0]
        texts: list[int | None] = pair.sequence_ids
        ids = np.array(pair.ids, np.int32)
        ends = {text: len(texts) - texts[::-1].index(text) for text in (0, 1)}
        self._before = ids[: texts.index(0)]
        self._between = ids[ends[0] : texts.index(1)]
        self._after = ids[ends[1] :]
        self._typed = types > 1 and max(pair.type_ids) > 0

    def head(self, query: str, instruction: str | None) -> Tokens:
        """Return all that stands before the document."""
        if instruction is not None:
            detail = "`instruction` is for models that are told what to look for; a cross-encoder is not."
            raise invalid(detail, "instruction", "unsupported_parameter")
        return np.concatenate((self._before, self._encoder.encode([query])[0], self._between))

    def document(self, text: str) -> str:
        """Return a document as it is."""
        return text

    @property
    def tail(self) -> Tokens:
        """What stands behind the document."""
        return self._after

    @property
    def typed(self) -> bool:
        """Whether tokens of the document have a type of their own."""
        return self._typed

    @property
    def causal(self) -> bool:
        """Whether no token looks at what follows: all look at all."""
        return False
