"""Purposes of the model types, and the error for a request that its model's type does not support."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    RawInput,
    RequestInput,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.problems import Problem

PURPOSES: Mapping[ModelType, str] = {
    "text": "text",
    "vision": "text and images",
    "embeddings": "embeddings",
    "rerank": "reranking",
    "speech": "speech",
    "transcription": "transcription",
}
"""The purpose of each model type, for error messages."""

_ASKED: Mapping[type, str] = {
    ChatInput: "a conversation",
    RawInput: "a prompt",
    EmbeddingInput: "texts to embed",
    ScoreInput: "documents to rank",
    SpeechInput: "text to speak",
    TranscriptionInput: "a recording to transcribe",
}


def wrong_kind(model: str, kind: ModelType, asked: RequestInput) -> Problem:
    """Return the 400 for an input that a model of type `kind` does not support."""
    detail = f"'{model}' is a model for {PURPOSES[kind]}; it does not take {_ASKED[type(asked)]}."
    return Problem(400, "unsupported_model_type", detail, "model")
