"""Limits on the texts of embedding requests in every protocol."""

from __future__ import annotations

from greenroom.schemas.messages.requests import EmbeddingInput
from greenroom.schemas.problems import invalid

MAX_INSTRUCTION = 16_384
"""Longest instruction, in characters; it is repeated before every text of the request."""


def checked_embedding(asked: EmbeddingInput) -> EmbeddingInput:
    """Return the input if it is within the limits.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if "" in asked.texts:
        at = asked.texts.index("")
        raise invalid(f"`{asked.param}` must not contain an empty string, but item {at} is one.", asked.param)
    if asked.instruction is not None and len(asked.instruction) > MAX_INSTRUCTION:
        detail = f"`instruction` has {len(asked.instruction)} characters, but may have {MAX_INSTRUCTION}."
        raise invalid(detail, "instruction")
    return asked
