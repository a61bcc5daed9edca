"""Detection of a model's type and capabilities from its files, without MLX.

This is the fallback for models that were never probed. The rules for each type are in files of their own
(`encoder_kinds.py`, `audio_kinds.py`, `vision_kinds.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.context_length import declared_context_length
from greenroom.engine.catalog.files.folder_contents import why_no_model
from greenroom.engine.catalog.files.json_files import read_json_object
from greenroom.engine.catalog.files.text_config import text_config
from greenroom.engine.catalog.files.vision_weights import holds_vision_weights
from greenroom.engine.catalog.kinds.audio_kinds import audio_kind, name_by_fields, why_audio_is_not_served
from greenroom.engine.catalog.kinds.encoder_kinds import encoder_kind
from greenroom.engine.catalog.kinds.families import family_of
from greenroom.engine.catalog.kinds.kind_traits import with_kind_traits
from greenroom.engine.catalog.kinds.libraries import MODULE_NAME, text_module
from greenroom.engine.catalog.kinds.other_purposes import other_purpose
from greenroom.engine.catalog.kinds.own_code import own_encoder
from greenroom.engine.catalog.kinds.spoken_backbones import speaking_architecture
from greenroom.engine.catalog.kinds.unserved_encoders import why_encoder_is_not_served
from greenroom.engine.catalog.kinds.vision_kinds import vision_module
from greenroom.engine.catalog.kinds.vlm_text_kinds import vlm_text_module
from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType
from greenroom.schemas.problems import ProblemError, load_failed

_UNTRUSTED = (
    "its config.json names Python code to run (`model_file`). If you trust its makers, start Greenroom with "
    "--trust-remote-code."
)


def detect(
    folder: Path, trust_remote_code: bool = False, name: str = "", *, allow_vision: bool = True
) -> CapabilityRecord:
    """Return the capability record of a model's folder.

    Args:
        trust_remote_code: Whether to accept a model with Python code of its own.
        name: Name of the model, also in errors; by default the folder's name.
        allow_vision: False to serve a vision model as a text model where code for that exists.

    Raises:
        ProblemError: 503 `load_failed` if the folder holds no usable model.
    """
    name = name or folder.name
    try:
        if not (folder / "config.json").exists():
            raise ValueError(why_no_model(folder))
        config = read_json_object(folder / "config.json")
        architecture = _architecture(config)
    except ValueError as error:
        raise ProblemError(load_failed(name, f"{error}.", lasting=True)) from error
    if config.get("model_file") and not trust_remote_code:
        raise ProblemError(load_failed(name, _UNTRUSTED, lasting=True))
    if (speaking := speaking_architecture(folder, config, name)) is not None:
        return with_kind_traits(CapabilityRecord("speech", "default", speaking, 0), folder, config)
    why = why_encoder_is_not_served(folder, config, architecture, name) or other_purpose(architecture, config)
    kind = _model_type(folder, config, architecture, name, allow_vision) if why is None else None
    if why is not None or (kind is None and not (trust_remote_code and config.get("model_file"))):
        raise ProblemError(load_failed(name, _why_unknown(why, architecture), lasting=True))
    if kind in ("embeddings", "rerank") and (own := own_encoder(architecture, config)) is not None:
        raise ProblemError(load_failed(name, _why_unknown(None, own), lasting=True))
    text_architecture = str((text_config(config) or config).get("model_type", architecture))
    module = text_module(text_architecture)
    context = declared_context_length(folder, config, module or text_module(architecture))
    family = family_of(architecture, text_architecture, name=name)
    record = CapabilityRecord(kind or "text", family, architecture, context)
    return with_kind_traits(record, folder, config)


def _architecture(config: Mapping[str, Any]) -> str:
    architecture = name_by_fields(config) or config.get("model_type")
    if not isinstance(architecture, str) or not MODULE_NAME.fullmatch(architecture):
        raise ValueError("config.json names no model_type")
    return architecture


def _model_type(
    folder: Path, config: Mapping[str, Any], architecture: str, name: str, allow_vision: bool
) -> ModelType | None:
    """Return the type of a model; None if its type is not served."""
    if (kind := encoder_kind(folder, config, architecture, name)) is not None:
        return kind
    writes = text_module(architecture) is not None
    if vision_module(architecture) is not None and not (writes and not allow_vision):
        return "vision" if not writes or holds_vision_weights(folder) else "text"
    if writes or vlm_text_module(architecture) is not None:
        return "text"
    return audio_kind(architecture, config)


def _why_unknown(why: str | None, architecture: str) -> str:
    """Return the sentence that refuses a model which is not served.

    Args:
        why: Purpose of the model, if known.
    """
    if (why := why or why_audio_is_not_served(architecture)) is not None:
        return f"{why}, which is not served here."
    return f"its architecture '{architecture}' is not known to the installed mlx-lm, mlx-vlm and mlx-audio."
