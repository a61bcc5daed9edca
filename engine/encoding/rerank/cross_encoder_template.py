"""The pair template of cross-encoders: the tokenizer's special tokens around two texts."""

from __future__ import annotations

import numpy as np

from greenroom.engine.encoding.rerank.pair_tokens import PlainEncoder
from greenroom.engine.encoding.rows import Tokens
from greenroom.schemas.problems import invalid


class CrossEncoderTemplate:
    """The template `[CLS] query [SEP] document [SEP]`, or the tokenizer's own for pairs.

    Args:
        encoder: The model's tokenizer.
        types: Number of token types that the model distinguishes.
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

    def prefix(self, query: str, instruction: str | None) -> Tokens:
        if instruction is not None:
            detail = "`instruction` is for models that are told what to look for; a cross-encoder is not."
            raise invalid(detail, "instruction", "unsupported_parameter")
        return np.concatenate((self._before, self._encoder.encode([query])[0], self._between))

    def document(self, text: str) -> str:
        return text

    @property
    def suffix(self) -> Tokens:
        return self._after

    @property
    def typed(self) -> bool:
        return self._typed

    @property
    def causal(self) -> bool:
        """Always False: attention is bidirectional."""
        return False
