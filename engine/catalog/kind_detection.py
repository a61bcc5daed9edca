"""Detection of a model's type, context length and capabilities from its files, without MLX.

This is the fallback for models that were never probed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.encoder_kinds import (
    PURPOSES,
    embedding_modules,
    encoder_kind,
    other_purpose,
    own_encoder,
    why_encoder_is_not_served,
)
from greenroom.engine.catalog.families import family_of
from greenroom.engine.catalog.libraries import (
    MODULE_NAME,
    exports_of,
    library_constant,
    library_folder,
    models_of,
    speaking_architecture,
    text_module,
)
from greenroom.engine.catalog.load_failures import why_no_model
from greenroom.engine.catalog.model_files import (
    list_voices,
    open_regular,
    read_json_object,
    read_optional,
    text_config,
)
from greenroom.engine.catalog.sentence_transformers_config import read_sentence_transformers_config
from greenroom.schemas.models.capabilities import CapabilityRecord, Modality, ModelType, VectorTraits
from greenroom.schemas.problems import ProblemError, load_failed

DEFAULT_CONTEXT_LENGTH = 8192
"""Context length in tokens if no file states one (mostly recurrent models, which have no limit)."""

_FIELDS = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "max_seq_length",
    "model_max_length",
    "seq_length",
    "n_positions",
    "n_ctx",
)
_MAX_CONTEXT_LENGTH = 2**31 - 1
_MAX_TOKENIZER_CONTEXT_LENGTH = 10_000_000
"""Largest plausible value in tokens; tokenizers without a limit declare 10^30."""


def declared_context_length(folder: Path, config: Mapping[str, Any], text_module: Path | None) -> int:
    """Return the context length in tokens from config.json, else the tokenizer, else mlx-lm's default.
    `text_module`: file of mlx-lm that implements the architecture.
    """
    for source in (text_config(config), config):
        for field in _FIELDS:
            length = _as_token_count(source.get(field), _MAX_CONTEXT_LENGTH)
            if length is not None:
                return max(length, _yarn_context_length(source))
    tokenizer = read_optional(folder / "tokenizer_config.json")
    length = _as_token_count(tokenizer.get("model_max_length"), _MAX_TOKENIZER_CONTEXT_LENGTH)
    return length or _library_default(text_module) or DEFAULT_CONTEXT_LENGTH


def _as_token_count(value: Any, largest: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= largest:
        return None
    return value


def _yarn_context_length(config: Mapping[str, Any]) -> int:
    """Return the context length after YaRN scaling; unlike others, it is not part of the declared length."""
    for scaling in _rope_settings(config):
        kind = scaling.get("rope_type", scaling.get("type"))
        original = _as_token_count(scaling.get("original_max_position_embeddings"), _MAX_CONTEXT_LENGTH)
        factor = scaling.get("factor")
        if kind == "yarn" and original and isinstance(factor, int | float) and 1 <= factor <= 1024:
            return min(int(original * factor), _MAX_CONTEXT_LENGTH)
    return 0


def _rope_settings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("rope_scaling", "rope_parameters"):
        settings = config.get(field)
        if isinstance(settings, dict):
            yield settings
            yield from (nested for nested in settings.values() if isinstance(nested, dict))


def _library_default(module: Path | None) -> int | None:
    if module is None:
        return None
    match = re.search(
        r"^\s+max_position_embeddings: .*= ([\d_]+)", module.read_text(encoding="utf-8"), re.MULTILINE
    )
    return int(match.group(1)) if match else None


_SEES = re.compile(
    r"(?:^|\.)(?:vision|visual|vit|vpm|img|image_encoder|image_tower|siglip|patch_embed|sam_model)",
    re.IGNORECASE,
)
"""Pattern of the names that models give their vision towers: `vision_tower`, `model.visual`, `vpm`, …"""

_MAX_HEADER_BYTES = 100_000_000
"""Size limit of the header, as in the reference reader. Source: safetensors' README, "Format"."""


def holds_vision_weights(folder: Path) -> bool:
    """Return whether weight files hold a vision tower, by the names in their index or headers."""
    try:
        files = sorted(path for path in folder.glob("*.safetensors*") if path.is_file())
        stamps = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    except OSError:
        return False
    return _sees(folder, stamps)


@functools.lru_cache(maxsize=256)
def _sees(folder: Path, stamps: tuple[tuple[str, int, int], ...]) -> bool:
    """Return the result for files of these names, sizes and times, which form the cache key."""
    index = read_optional(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict) and index:
        return any(_SEES.search(name) is not None for name in index)
    files = (folder / name for name, _, _ in stamps if name.endswith(".safetensors"))
    return any(_SEES.search(name) is not None for file in files for name in _names(file))


def _names(file: Path) -> Iterator[str]:
    """Yield the tensor names of a file; none if it is broken."""
    try:
        with open_regular(file) as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MAX_HEADER_BYTES else None
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(header, dict):
        yield from header


_UNTRUSTED = (
    "its config.json names Python code to run (`model_file`). If you trust its makers, start Greenroom with "
    "--trust-remote-code."
)


def detect(
    folder: Path, trust_remote_code: bool = False, name: str = "", *, allow_vision: bool = True
) -> CapabilityRecord:
    """Return the capability record of a model's folder.

    Args:
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
    if (kind := encoder_kind(folder, config, architecture, name)) is not None:
        return kind
    writes = text_module(architecture) is not None
    if vision_module(architecture) is not None and not (writes and not allow_vision):
        return "vision" if not writes or holds_vision_weights(folder) else "text"
    if writes or vlm_text_module(architecture) is not None:
        return "text"
    return audio_kind(architecture, config)


def _why_unknown(why: str | None, architecture: str) -> str:
    if (why := why or why_audio_is_not_served(architecture)) is not None:
        return f"{why}, which is not served here."
    return f"its architecture '{architecture}' is not known to the installed mlx-lm, mlx-vlm and mlx-audio."


_LONGEST_TEXT = 10_000_000  # Tokens from which a declared limit means that the tokenizer knows none

_PADDED_POSITIONS = ("roberta", "camembert")
"""Substrings of encoder architectures whose positions start after the padding token's id."""


def with_kind_traits(record: CapabilityRecord, folder: Path, config: Mapping[str, Any]) -> CapabilityRecord:
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
    try:
        files = read_sentence_transformers_config(folder)
    except ValueError:
        return None
    return VectorTraits(files.width, "+".join(files.pooling.modes), files.normalized)


def _count(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


_KINDS: Mapping[str, ModelType] = {"tts": "speech", "stt": "transcription"}

_NOT_SERVED: Mapping[str, str] = {
    "sts": "it turns speech into speech",
    "vad": "it detects who speaks, and when",
    "lid": "it tells spoken languages apart",
    "music": "it makes music",
    "codec": "it is a codec of audio",
}
"""Purposes of the models in mlx-audio's other folders."""

_BACKBONES = frozenset({"llama", "qwen3"})
"""Folders of mlx-audio named after language models; such a name does not identify an audio model
(`speaking_architecture` tells which of them speak)."""

_SIGNS: Mapping[str, frozenset[str]] = {
    "tada": frozenset({"acoustic_dim"}),
    "mimo_audio": frozenset({"speech_vocab_size", "local_layers", "audio_channels"}),
}
"""Fields that identify audio models whose `model_type` is that of a language model."""

_NAMELESS: Mapping[str, frozenset[str]] = {
    "pocket_tts": frozenset({"flow_lm", "mimi"}),
    "kokoro": frozenset({"istftnet", "plbert"}),
    "whisper": frozenset({"n_mels", "n_audio_ctx", "n_text_ctx"}),
}
"""Fields that identify models without a `model_type`."""


def name_by_fields(config: Mapping[str, Any]) -> str | None:
    """Return the architecture identified by a configuration's fields, if its name does not identify it."""
    if "model_type" not in config:
        named = config.get("architecture")
        found = next((name for name, fields in _NAMELESS.items() if fields <= config.keys()), None)
        found = found or _nemo_name(config)
        return found or (named if isinstance(named, str) else None)
    if config["model_type"] in ("llama", "qwen2", "mimo_audio"):
        return next((name for name, fields in _SIGNS.items() if fields <= config.keys()), None)
    return None


def audio_kind(architecture: str, config: Mapping[str, Any]) -> ModelType | None:
    """Return the model type of a served mlx-audio model; None for other models."""
    kinds = [kind for folder, kind in _KINDS.items() if architecture in _names_of(folder)]
    if len(kinds) > 1:
        classes = " ".join(map(str, config.get("architectures") or ()))
        return "transcription" if "ASR" in classes else "speech"
    return kinds[0] if kinds else None


def why_audio_is_not_served(architecture: str) -> str | None:
    """Return the purpose of an mlx-audio model whose type is not served; None for other models."""
    root = library_folder("mlx_audio")
    if root is None:
        return None
    for folder, why in _NOT_SERVED.items():
        if architecture in _names_of(folder) or (root / folder / "models" / architecture).is_dir():
            return why
    return None


@functools.cache
def _names_of(kind: str) -> frozenset[str]:
    remapping: Mapping[str, str] = library_constant("mlx_audio", f"{kind}/utils.py", "MODEL_REMAPPING")
    return (models_of("mlx_audio", f"{kind}/models") | frozenset(remapping)) - _BACKBONES


def _nemo_name(config: Mapping[str, Any]) -> str | None:
    """Return the architecture of a configuration in NVIDIA NeMo's format, by its target class."""
    target = str(config.get("target", ""))
    if not target.startswith("nemo.collections.asr."):
        return None
    return "canary" if "MultiTask" in target else "parakeet"


_VIDEO_MARKS = ("pixel_values_videos", "video_grid_thw")


def module_of(architecture: str) -> str:
    """Return the name of an architecture's package, as mlx-vlm's `get_model_type` does."""
    remapping: Mapping[str, str] = library_constant("mlx_vlm", "utils.py", "MODEL_REMAPPING")
    return remapping.get(architecture.lower(), architecture.lower())


def vision_module(architecture: str) -> str | None:
    """Return the mlx-vlm package of a vision-language architecture; None if there is none."""
    module = module_of(architecture)
    if module not in models_of("mlx_vlm") or module in PURPOSES or module in embedding_modules():
        return None
    formats: Mapping[str, str] = library_constant("mlx_vlm", "prompt_utils.py", "MODEL_CONFIG")
    chat_format = formats.get(architecture) or formats.get(module) or "TEXT_ONLY"
    has_tower = not exports_of("mlx_vlm", module).isdisjoint(("VisionModel", "VisionConfig"))
    return module if has_tower or not chat_format.endswith("TEXT_ONLY") else None


def takes_many_images(architecture: str) -> bool:
    """Return whether a prompt may hold more than one image."""
    single = library_constant("mlx_vlm", "prompt_utils.py", "SINGLE_IMAGE_ONLY_MODELS")
    return not {architecture, module_of(architecture)} & set(single)


@functools.cache
def takes_video(architecture: str) -> bool:
    return _mentions(module_of(architecture), _VIDEO_MARKS)


@functools.cache
def takes_audio(architecture: str) -> bool:
    """Return whether the library's code for an architecture has an audio encoder."""
    exports = exports_of("mlx_vlm", module_of(architecture))
    return not exports.isdisjoint(("AudioModel", "AudioEncoder")) or (
        "AudioConfig" in exports and _mentions(module_of(architecture), ("input_features", "audio_values"))
    )


def _mentions(module: str, words: tuple[str, ...]) -> bool:
    root = library_folder("mlx_vlm")
    folder = None if root is None else root / "models" / module
    if folder is None or not folder.is_dir():
        return False
    sources = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return any(word in source for source in sources for word in words)


def vlm_text_module(architecture: str) -> str | None:
    """Return the mlx-vlm package of an architecture that only writes text.

    mlx-lm's code comes first, since the table of batching is made with it: None if it has the architecture.
    """
    module = module_of(architecture)
    if text_module(architecture) is not None or module not in models_of("mlx_vlm"):
        return None
    sees = vision_module(architecture) is not None
    return None if sees or module in PURPOSES or module in embedding_modules() else module
