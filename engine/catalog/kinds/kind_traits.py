"""Type-specific capabilities from a model's files: inputs, embedding properties and voices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.sentence_transformers_config import read_sentence_transformers_config
from greenroom.engine.catalog.files.voices import list_voices
from greenroom.engine.catalog.kinds.vision_kinds import takes_audio, takes_many_images, takes_video
from greenroom.schemas.models.capabilities import CapabilityRecord, Modality, VectorTraits

_LONGEST_TEXT = 10_000_000
"""Tokens from which a declared limit means that the tokenizer knows none."""

_PADDED_POSITIONS = ("roberta", "camembert")
"""Substrings of encoder architectures whose positions start after the padding token's id."""


def with_kind_traits(record: CapabilityRecord, folder: Path, config: Mapping[str, Any]) -> CapabilityRecord:
    """Return a capability record with the fields specific to its type."""
    match record.model_type:
        case "vision":
            images = takes_many_images(record.architecture)
            return attrs.evolve(
                record, inputs=_seen_and_heard(record.architecture, config), multi_image=images
            )
        case "embeddings":
            length = _longest_text(record, folder, config)
            return attrs.evolve(record, context=length, vectors=_vectors(folder))
        case "rerank":
            return attrs.evolve(record, context=_longest_text(record, folder, config))
        case "speech":
            return attrs.evolve(record, voices=list_voices(folder))
        case "transcription":
            return attrs.evolve(record, inputs=("audio",))
        case _:
            return record


def _seen_and_heard(architecture: str, config: Mapping[str, Any]) -> tuple[Modality, ...]:
    modalities: dict[Modality, bool] = {
        "text": True,
        "image": True,
        "audio": takes_audio(architecture) and isinstance(config.get("audio_config"), dict),
        "video": takes_video(architecture),
    }
    return tuple(modality for modality, has in modalities.items() if has)


def _longest_text(record: CapabilityRecord, folder: Path, config: Mapping[str, Any]) -> int:
    """Return the maximum text length in tokens; an encoder's other files may state a smaller one."""
    longest = record.context
    if any(name in record.architecture for name in _PADDED_POSITIONS):
        longest = max(1, longest - 1 - _count(config.get("pad_token_id"), 1))
    declared = (
        read_optional(folder / "sentence_bert_config.json").get("max_seq_length"),
        read_optional(folder / "tokenizer_config.json").get("model_max_length"),
    )
    return min((longest, *(value for value in map(_count, declared) if 0 < value < _LONGEST_TEXT)))


def _vectors(folder: Path) -> VectorTraits | None:
    """Return the properties of a model's embeddings; None if they are computed in an unknown way."""
    try:
        files = read_sentence_transformers_config(folder)
    except ValueError:
        return None
    return VectorTraits(files.width, "+".join(files.pooling.modes), files.normalized)


def _count(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
