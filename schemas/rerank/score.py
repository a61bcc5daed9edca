"""Request and response bodies of `/v1/score`, after vLLM."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.rerank.converter import RERANK_CONVERTER
from greenroom.schemas.rerank.rerank import MAX_DOCUMENTS
from greenroom.schemas.wire import WireError, wrong_type


@attrs.frozen
class Texts:
    """One or several texts.

    Args:
        several: True if the client sent an array.
    """

    texts: tuple[str, ...]
    several: bool


@attrs.frozen
class ScoreRequest:
    """The body of a scoring request: one text against many, or two lists of equal length pairwise."""

    model: str
    text_1: Texts
    text_2: Texts
    instruction: str | None = None


@attrs.frozen
class ScoreBody:
    """The score of a pair."""

    index: int
    score: float
    object: Literal["score"] = "score"


@attrs.frozen
class ScoreAnswer:
    """The response body; `created` is a Unix time in seconds."""

    id: str
    created: int
    model: str
    data: tuple[ScoreBody, ...]
    usage: dict[str, int]
    object: Literal["list"] = "list"


def _texts(value: Any, _: Any) -> Texts:
    if isinstance(value, str):
        return Texts((value,), several=False)
    if not isinstance(value, list):
        raise wrong_type("a string or an array of strings", value)
    if not value:
        raise WireError("must not be empty")
    if len(value) > MAX_DOCUMENTS:
        raise WireError(f"has {len(value)} items, but must have at most {MAX_DOCUMENTS}")
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise WireError(f"must hold strings only, but item {index} is something else")
    return Texts(tuple(value), several=True)


RERANK_CONVERTER.register_structure_hook(Texts, _texts)
