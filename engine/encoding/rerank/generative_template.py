"""The pair template of Qwen3-Reranker: a question whose answer is `yes` or `no`.

Source: the model's card, "Transformers Usage".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.encoding.rerank.pair_tokens import PlainEncoder
from greenroom.engine.encoding.rows import Tokens

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""Default instruction: the criterion of relevance."""

MAX_CONTEXT = 8_192
"""Limit of tokens per pair, from the model's card; a pair is computed in one pass."""

_JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
_BEFORE = f"<|im_start|>system\n{_JUDGE}<|im_end|>\n<|im_start|>user\n"
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class GenerativeTemplate:
    """The model's prompt around a query and a document."""

    def __init__(self, encoder: PlainEncoder) -> None:
        self._encoder = encoder
        self._before = encoder.written(_BEFORE)
        self._after = encoder.written(_AFTER)

    def prefix(self, query: str, instruction: str | None) -> Tokens:
        asked = f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>:"
        return np.concatenate((self._before, self._encoder.encode([asked])[0]))

    def document(self, text: str) -> str:
        """Return a document with the space that separates it from its label."""
        return f" {text}"

    @property
    def suffix(self) -> Tokens:
        return self._after

    @property
    def typed(self) -> bool:
        """Always False: tokens have no types."""
        return False

    @property
    def causal(self) -> bool:
        """Always True: the model is a decoder."""
        return True


def answer_tokens(folder: Path, vocabulary: Mapping[str, int]) -> tuple[int, int]:
    """Return the token ids of `yes` and `no`, or of the answers named in the model's files.

    Raises:
        ValueError: The vocabulary lacks one.
    """
    for file in sorted(folder.glob("*_LogitScore/config.json")):
        named = read_optional(file)
        found = _token(named.get("true_token_id")), _token(named.get("false_token_id"))
        if found[0] is not None and found[1] is not None:
            return found[0], found[1]
    yes, no = vocabulary.get("yes"), vocabulary.get("no")
    if yes is None or no is None:
        raise ValueError(
            "its vocabulary has no tokens 'yes' and 'no', which a decoder that ranks answers with"
        )
    return yes, no


def _token(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
