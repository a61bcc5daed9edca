"""What a model of a known kind can do, as its files tell: what it takes, its vectors, its voices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import attrs

from greenroom.engine.catalog.model_files import read_optional
from greenroom.engine.catalog.vision_kinds import takes_audio, takes_many_images, takes_video
from greenroom.engine.catalog.voices import list_voices
from greenroom.schemas.capabilities import CapabilityRecord, Modality, Pooling, VectorTraits

_LONGEST_TEXT = 10_000_000
"""Tokens; what is longer is no bound but a tokenizer's way to say that it knows none."""

_PADDED_POSITIONS = ("roberta", "camembert")
"""Parts of the names of encoders whose positions begin behind that of the padding token."""


def with_kind_traits(record: CapabilityRecord, folder: Path, config: Mapping[str, Any]) -> CapabilityRecord:
    """Return a record with what belongs to its kind."""
    match record.model_type:
        case "vision":
            images = takes_many_images(record.architecture)
            return attrs.evolve(record, inputs=_seen_and_heard(record.architecture), multi_image=images)
        case "embeddings":
            length = _longest_text(record, folder, config)
            return attrs.evolve(record, context=length, vectors=_vectors(folder, config))
        case "rerank":
            return attrs.evolve(record, context=_longest_text(record, folder, config))
        case "speech":
            return attrs.evolve(record, voices=list_voices(folder))
        case "transcription":
            return attrs.evolve(record, inputs=("audio",))
        case _:
            return record


def _seen_and_heard(architecture: str) -> tuple[Modality, ...]:
    senses: dict[Modality, bool] = {
        "text": True,
        "image": True,
        "audio": takes_audio(architecture),
        "video": takes_video(architecture),
    }
    return tuple(sense for sense, has in senses.items() if has)


def _longest_text(record: CapabilityRecord, folder: Path, config: Mapping[str, Any]) -> int:
    """Return the tokens of the longest text, which an encoder's files may say once more, and smaller."""
    longest = record.context
    if any(name in record.architecture for name in _PADDED_POSITIONS):
        longest = max(1, longest - 1 - _count(config.get("pad_token_id"), 1))
    declared = (
        read_optional(folder / "sentence_bert_config.json").get("max_seq_length"),
        read_optional(folder / "tokenizer_config.json").get("model_max_length"),
    )
    return min((longest, *(value for value in map(_count, declared) if 0 < value < _LONGEST_TEXT)))


def _vectors(folder: Path, config: Mapping[str, Any]) -> VectorTraits:
    modules = list(_sentence_modules(folder))
    poolings = [_pooling(folder / place) for kind, place in modules if kind == "Pooling"]
    pooling, width = poolings[0] if poolings else (None, 1)
    dense = [read_optional(folder / place / "config.json") for kind, place in modules if kind == "Dense"]
    text = config.get("text_config")
    hidden = _count((text if isinstance(text, dict) else config).get("hidden_size")) * width
    dimensions = next(
        (size for layer in reversed(dense) if (size := _count(layer.get("out_features")))), hidden
    )
    normalized = any(kind == "Normalize" for kind, _ in modules) if modules else None
    return VectorTraits(dimensions or None, pooling, normalized)


def _sentence_modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the class and the folder of each step that sentence-transformers would take."""
    try:
        with (folder / "modules.json").open("rb") as file:
            steps = json.loads(file.read(_MAX_MODULES_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and _is_inside(place := str(step.get("path", ""))):
            yield str(step.get("type", "")).rpartition(".")[2], place


_MAX_MODULES_BYTES = 1_000_000


def _is_inside(place: str) -> bool:
    return not Path(place).is_absolute() and ".." not in Path(place).parts


def _pooling(folder: Path) -> tuple[Pooling | None, int]:
    """Return how tokens' vectors become one, and how many such vectors are put side by side."""
    config = read_optional(folder / "config.json")
    named = config.get("pooling_mode")
    chosen = (
        [named]
        if isinstance(named, str)
        else [mode for mode in get_args(Pooling) if config.get(_flag(mode)) is True]
    )
    known = next((mode for mode in get_args(Pooling) if chosen and mode == chosen[0]), None)
    return (known if len(chosen) == 1 else None), max(1, len(chosen))


def _flag(mode: str) -> str:
    """Return the name of the field by which older files choose a way of pooling."""
    tokens = (
        mode
        if mode in ("lasttoken", "mean_sqrt_len_tokens")
        else f"{mode}_token"
        if mode == "cls"
        else f"{mode}_tokens"
    )
    return f"pooling_mode_{tokens}"


def _count(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
