"""The memory that a load will need, computed from the model's files before anything is loaded."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.model_files import read_optional, text_config
from greenroom.engine.loading.devices import expects_cpu, use_device, weight_type
from greenroom.engine.loading.libraries import MOST_UNPACKED, prefer_openblas
from greenroom.engine.loading.weight_files import StoredTensor, check_sizes, read_tensors
from greenroom.engine.resources.device_memory import default_memory
from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.setting_groups import Dtype
from greenroom.schemas.settings.settings import Settings

FIRST_TOKENS = 2_048
"""Tokens of KV cache that must fit beside the weights; a model with less cache is of no use."""

_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_HALVES = frozenset({"F16", "BF16"})
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
_PACKED = frozenset({"U32", "I32"})  # Types of quantized weights, MLX's and others'
_FP8 = frozenset({"F8_E4M3", "F8_E5M2"})

_PREFILL_TOKENS = 512  # Tokens of the prefill chunk whose temporary arrays are estimated
_LEAST_SOUND, _MOST_SOUND = 32 << 20, 1 << 30
"""Limits of the estimate for sound models, in bytes; between them, it equals the size of the weights."""

_UNUSED_IN_TEXT = re.compile(
    r"(^|\.)(vision_tower|vision_model|visual|audio_tower|multi_modal_projector|mtp)\.|rotary_emb\.inv_freq"
)
"""Tensors that mlx-lm drops: encoders of other modalities, multi-token prediction layers, RoPE constants."""
_WITHOUT_ATTENTION = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv7"})
"""Architectures that keep a state of fixed size, and nothing of each token."""
_EXPANDS_LATENT = frozenset(
    {"deepseek_v2", "deepseek_vl_v2", "deepseekocr", "kimi_vl", "minicpm3", "youtu_llm"}
)
"""Architectures with a latent (MLA) whose code caches the keys and values of each head instead."""
_UNUSED_IN_ENCODERS = re.compile(r"(^|\.)(pooler|position_ids|cls\.|lm_head)|rotary_emb\.inv_freq")


@attrs.frozen
class LoadSize:
    """The memory that a load needs, in bytes. `cache`: KV cache of the first tokens; 0 for models without
    such a cache.
    """

    weights: int
    working: int = 0
    cache: int = 0

    @property
    def least(self) -> int:
        """Sum without the temporary arrays, of which only an estimate is known before the first load."""
        return self.weights + self.cache

    @property
    def total(self) -> int:
        """Sum of all parts in bytes."""
        return self.weights + self.working + self.cache

    def __add__(self, other: LoadSize) -> LoadSize:
        return LoadSize(self.weights + other.weights, self.working + other.working, self.cache + other.cache)


LEAST_MEASURED = 4
"""Divisor of the estimate that yields the least working space: a load may have seen only short prompts."""


def with_measured_working(size: LoadSize, measured: int | None) -> LoadSize:
    """Return a size with the working space measured at the model's last load; None if there was none."""
    if measured is None:
        return size
    return attrs.evolve(size, working=max(measured, size.working // LEAST_MEASURED))


def load_size(
    folder: Path,
    record: CapabilityRecord,
    settings: Settings,
    draft_folder: Path | None = None,
    tokens: int = FIRST_TOKENS,
    *,
    checked: bool = True,
) -> LoadSize:
    """Return the memory that loading a model needs; reads its configuration and the headers of its weights.

    Args:
        draft_folder: Folder of the draft model; None if there is none.
        tokens: Tokens for which there is a cache, at most the model's context.
        checked: See `read_tensors`.

    Raises:
        ValueError: A weight file is broken, or config.json states sizes that the weights do not have.
    """
    kind, config = record.model_type, read_optional(folder / "config.json")
    tensors = dict(_tensors(folder, kind, checked))
    if kind not in ("speech", "transcription"):  # sizes that no weights confirm would ask for any memory
        check_sizes(config, [{name: tensor.shape for name, tensor in tensors.items()}])
    asked = settings
    settings = attrs.evolve(settings, dtype=_weight_type(record, tensors, settings))
    weights = _weight_bytes(tensors, config, kind, settings) + _other_files(folder, kind)
    working = _working_bytes(kind, config, weights, settings)
    if kind not in ("speech", "transcription"):
        working += _unpacked_bytes(tensors, settings)
    if kind not in ("text", "vision"):
        return LoadSize(weights, working)
    tokens = min(tokens, record.context, settings.max_context or record.context)
    cache = _cache_bytes(config, tensors, tokens, settings)
    if settings.kv_cache_bytes is not None:
        cache = min(cache, settings.kv_cache_bytes)
    size = LoadSize(weights, working, cache)
    if draft_folder is None:
        return size
    draft = load_size(draft_folder, attrs.evolve(record, model_type="text"), asked, checked=checked)
    return size + attrs.evolve(draft, working=0)


_NUMBERED_LAYER = re.compile(r"[:.](?:layers|blocks|h)\.(\d+)\.")
_EMBEDDINGS = re.compile(r"embed_tokens\.|embeddings\.")


@attrs.frozen
class PartSizes:
    """The memory of a text model's parts, in bytes.

    Args:
        embeddings: Weights before the first layer.
        head: Weights after the last layer; the embeddings too if the model is tied to them.
        layers: Weights and KV cache of each layer.
        working: Temporary arrays, which every process that has layers needs.
        divides_cache: Whether ranks that share a layer's heads share its cache; a latent each has whole.
    """

    embeddings: int
    head: int
    layers: tuple[LoadSize, ...]
    working: int
    divides_cache: bool


def part_sizes(folder: Path, record: CapabilityRecord, settings: Settings) -> PartSizes:
    """Return the memory that each part of a text model needs; reads what `load_size` does.

    Raises:
        ValueError: A weight file is broken, or the tensors are not named by numbered layers.
    """
    config = read_optional(folder / "config.json")
    tensors = dict(_tensors(folder, "text", checked=False))
    settings = attrs.evolve(settings, dtype=_weight_type(record, tensors, settings))
    parts = defaultdict[int, dict[str, StoredTensor]](dict)
    for place, tensor in tensors.items():
        numbered = _NUMBERED_LAYER.search(place)
        parts[int(numbered[1]) if numbered else -1][place] = tensor
    weights = {part: _weight_bytes(parts[part], config, "text", settings) for part in parts}
    count = _number(config, "num_hidden_layers") or max(weights, default=-1) + 1
    if not count or not all(weights.get(layer) for layer in range(count)):
        raise ValueError("its weights are not named by numbered layers, so it cannot be split")
    others = parts[-1]
    first = {place: tensor for place, tensor in others.items() if _EMBEDDINGS.search(place)}
    embeddings = _weight_bytes(first, config, "text", settings)
    is_tied = not any("lm_head." in place for place in others)
    head = weights.get(-1, 0) - (0 if is_tied else embeddings)
    cache = _cache_bytes(config, tensors, min(FIRST_TOKENS, record.context), settings) // count
    layers = tuple(LoadSize(weights[layer], cache=cache) for layer in range(count))
    working = _working_bytes("text", config, 0, settings)
    return PartSizes(embeddings, head, layers, working, divides_cache=not _latent_width(config))


def _tensors(folder: Path, kind: ModelType, checked: bool) -> Iterator[tuple[str, StoredTensor]]:
    files = sorted(folder.glob("model*.safetensors"))
    if kind == "speech" or (kind == "transcription" and not files):
        files = sorted(folder.glob("*.safetensors"))
    if kind == "embeddings":
        files += sorted(folder.glob("*/model.safetensors"))
    for file in files:
        for name, tensor in read_tensors(file, checked=checked).items():
            yield f"{file.name}:{name}", tensor


def _other_files(folder: Path, kind: ModelType) -> int:
    if kind not in ("speech", "transcription"):
        return 0
    return sum(file.stat().st_size for file in folder.glob("*.npz"))


def _weight_type(record: CapabilityRecord, tensors: Mapping[str, StoredTensor], settings: Settings) -> Dtype:
    """Return the type of the loaded weights; `auto` for that of the files."""
    if record.model_type in ("speech", "transcription"):
        # mlx-audio computes Whisper in float16, and other models of sound as their files are.
        return weight_type(settings, slow=True) if record.architecture == "whisper" else "auto"
    return weight_type(settings, any(tensor.dtype in _PACKED for tensor in tensors.values()))


def _weight_bytes(
    tensors: Mapping[str, StoredTensor], config: Mapping[str, Any], kind: ModelType, settings: Settings
) -> int:
    unpacks = _unpacks_fp8(tensors)
    total = 0
    for file_and_name, tensor in tensors.items():
        if _is_unused(file_and_name.partition(":")[2], config, kind):
            continue
        nbytes = tensor.nbytes
        if settings.dtype != "auto" and tensor.dtype in _FLOATS:
            nbytes = nbytes // _FLOATS[tensor.dtype] * _SIZES[settings.dtype]
        elif unpacks and tensor.dtype in _FP8:
            nbytes *= 2
        total += nbytes
    return total


def _unpacks_fp8(tensors: Mapping[str, StoredTensor]) -> bool:
    """Return whether the library converts FP8 weights to bfloat16: it does if they have block-wise scales."""
    return any(name.endswith("weight_scale_inv") for name in tensors)


def _is_unused(name: str, config: Mapping[str, Any], kind: ModelType) -> bool:
    match kind:
        case "text":
            tied = config.get("tie_word_embeddings", False) is True
            return bool(_UNUSED_IN_TEXT.search(name)) or (tied and name.startswith("lm_head."))
        case "embeddings":
            return bool(_UNUSED_IN_ENCODERS.search(name))
        case _:
            return name.endswith("rotary_emb.inv_freq")


def _working_bytes(kind: ModelType, config: Mapping[str, Any], weights: int, settings: Settings) -> int:
    if kind in ("speech", "transcription"):
        return min(max(weights, _LEAST_SOUND), _MOST_SOUND)
    hidden = _number(config, "hidden_size", "n_embd", "d_model")
    inner = _number(config, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    layer = _PREFILL_TOKENS * (8 * hidden + 3 * inner) * _cache_item_bytes(settings)
    if kind in ("embeddings", "rerank"):
        return layer
    return layer + 8 * min(settings.max_batch, 32) * _number(config, "vocab_size")


def _unpacked_bytes(tensors: Mapping[str, StoredTensor], settings: Settings) -> int:
    """Return the bytes of the largest matrix as it is unpacked for OpenBLAS; 0 where it is not."""
    if not (expects_cpu(settings) and prefer_openblas()):
        return 0
    numbers = [
        # Packed weights have four bits at the least in most models.
        2 * tensor.nbytes if tensor.dtype in _PACKED else math.prod(tensor.shape)
        for name, tensor in tensors.items()
        if len(tensor.shape) == 2
        and "embed" not in name
        and (tensor.dtype in _PACKED or (tensor.dtype in _HALVES and settings.dtype != "float32"))
    ]
    return 4 * min(MOST_UNPACKED, max(numbers, default=0))


def _cache_bytes(
    config: Mapping[str, Any], tensors: Mapping[str, StoredTensor], tokens: int, settings: Settings
) -> int:
    """Return the bytes of a KV cache of `tokens` tokens, computed from the model's configuration."""
    item = _cache_item_bytes(settings)
    if settings.dtype == "auto" and _is_float32(tensors):
        item = 4
    layers = _number(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    window = _number(config, "sliding_window", "attention_window_size")
    full, sliding = _attention_layers(config, layers)
    positions = full * tokens + sliding * (min(tokens, window) if window else tokens)
    nbytes = positions * _width(config) * item
    return nbytes if settings.kv_bits is None else nbytes * (settings.kv_bits + 1) // (8 * item)


def _attention_layers(config: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """Return the numbers of full and of sliding attention layers; other layers have no per-token cache."""
    if config.get("model_type") in _WITHOUT_ATTENTION:
        return 0, 0
    if isinstance(pattern := config.get("hybrid_override_pattern"), str | list):
        return pattern[:layers].count("*"), 0
    if isinstance(blocks := config.get("block_types"), list) and blocks:  # repeated over all layers
        return 0, layers * blocks.count("attention") // len(blocks)
    if period := _number(config, "attn_layer_period"):
        return layers // period, 0
    types = text_config(config).get("layer_types", config.get("layer_types"))
    if not isinstance(types, list) or not types:
        if interval := _number(config, "sliding_window_pattern"):
            return layers // interval, layers - layers // interval
        return layers // (_number(config, "full_attention_interval") or 1), 0
    types = types[:layers] if layers else types
    sliding = sum("sliding" in str(layer) or "local" in str(layer) for layer in types)
    linear = sum(word in str(layer) for layer in types for word in ("linear", "conv", "mamba", "recurrent"))
    return max(0, len(types) - sliding - linear), sliding


def _width(config: Mapping[str, Any]) -> int:
    """Return the number of values that an attention layer caches per token."""
    if latent := _latent_width(config):
        return latent
    heads = _number(config, "num_attention_heads", "n_head", "n_heads") or 1
    kv_heads = _number(config, "num_key_value_heads", "num_kv_heads") or heads
    head = _number(config, "head_dim") or _number(config, "hidden_size", "n_embd") // heads
    if _number(config, "kv_lora_rank"):
        keys = _number(config, "qk_nope_head_dim") + _number(config, "qk_rope_head_dim")
        return heads * (keys + (_number(config, "v_head_dim") or head))
    return 2 * kv_heads * head


def _latent_width(config: Mapping[str, Any]) -> int:
    """Return the number of values that all heads of a layer cache together (MLA); 0 if each has its own."""
    latent = _number(config, "kv_lora_rank")
    if not latent or config.get("model_type") in _EXPANDS_LATENT:
        return 0
    return latent + _number(config, "qk_rope_head_dim")


def _cache_item_bytes(settings: Settings) -> int:
    return _SIZES.get(settings.dtype, 2)


def _is_float32(tensors: Mapping[str, StoredTensor]) -> bool:
    """Return whether most weight bytes are 32-bit floats; the KV cache then has this type too."""
    floats = sum(tensor.nbytes for tensor in tensors.values() if tensor.dtype == "F32")
    return 2 * floats > sum(tensor.nbytes for tensor in tensors.values())


def _number(config: Mapping[str, Any], *names: str) -> int:
    """Return the first plausible number among these fields, those of the text model first; 0 if none."""
    for source in (text_config(config), config):
        for name in names:
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
                return value
    return 0


def practical_context(
    folder: Path, record: CapabilityRecord, settings: Settings, limit: int | None
) -> int | None:
    """Return the longest context of a single request that fits into memory beside the weights, in tokens.

    It is at most the model's own.

    Args:
        limit: Bytes that all models may have together; None if unknown.

    Returns:
        The context; None if the limit or the model's size is unknown.
    """
    if limit is None:
        return None
    unlimited = attrs.evolve(settings, kv_cache_bytes=None)
    kv_limit = limit if settings.kv_cache_bytes is None else settings.kv_cache_bytes

    def fits(tokens: int) -> bool:
        size = load_size(folder, record, unlimited, tokens=tokens)
        return size.total <= limit and size.cache <= kv_limit

    least, most = 0, min(record.context, settings.max_context or record.context)
    try:
        if fits(most):
            return most
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if fits(middle) else (least, middle)
    except (OSError, ValueError):
        return None
    return least


def why_pins_do_not_fit(settings: Settings) -> str | None:
    """Return a description of the pinned models' sizes if they exceed the memory together; None if they fit.

    Models without local files or of unknown size do not count: their loads will tell.
    """
    if not any(table.pinned for _, table in settings.model_settings):
        return None
    sizes = _pinned_sizes(settings)
    total, limit = sum(sizes.values()), settings.memory_bytes
    if limit is None and sizes:
        try:
            use_device(settings)
        except ProblemError:  # as the loads will tell
            return None
        limit = default_memory()
    if limit is None or total <= limit:
        return None
    each = ", ".join(f"{name} {nbytes:,}" for name, nbytes in sizes.items())
    return f"pinned models need {total:,} bytes together ({each}), but models can have {limit:,}"


def _pinned_sizes(settings: Settings) -> dict[str, int]:
    """Return the least bytes that each pinned model with local files needs, by name."""
    catalog = Catalog.of(settings)
    sizes: dict[str, int] = {}
    for entry in catalog.entries():
        if entry.folder is None or not settings.of_model(entry.id).pinned:
            continue
        own = settings.applied_to(entry.id)
        try:
            record = detect(entry.folder, own.trust_remote_code, entry.id)
            sizes[entry.id] = load_size(entry.folder, record, own).least
        except (ProblemError, OSError, ValueError):
            continue
    return sizes
