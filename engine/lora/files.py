"""Adapters (LoRA) on disk: their configuration, the header of their weights, and the checks of both.

Nothing here imports MLX: folders are listed, and their weights read, on threads without a device.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import attrs

from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG, READ_ADAPTERS, find_adapter
from greenroom.engine.catalog.model_files import MAX_CONFIG_BYTES, fingerprint, read_json_object, read_regular
from greenroom.engine.loading.weight_files import StoredTensor, read_tensors
from greenroom.schemas.messages.requests import AppliedAdapter
from greenroom.schemas.problems import ProblemError, load_failed

MAX_RANK = 256
"""Largest rank of an adapter, as in mistral.rs."""

_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of a number, by the number formats of adapters that are read."""

_MAX_SCALE, _MAX_ALPHA = 1e4, 1e6
_MOST_TENSORS, _LONGEST_NAME = 50_000, 300
_MLX_SUFFIXES = {".lora_a": "a", ".lora_b": "b"}
_PEFT_SUFFIXES = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_embedding_A": "a",
    ".lora_embedding_B": "b",
}
_EXPERT = re.compile(r"(.+)\.experts\.(\d{1,4})\.(\w+)")
_OUTER = frozenset({"base_model", "model", "language_model", "text_model", "transformer", "backbone"})
"""Components of modules' paths that differ among libraries and say nothing."""

_LAYER = re.compile(r"(.*?\.?(?:layers|h|blocks)\.)(\d+)\.")
_MORE_THAN_LORA = (
    "modules_to_save",
    "trainable_token_indices",
    "layer_replication",
    "alora_invocation_tokens",
)
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
"""Initializations of PEFT that train against changed weights of the base."""


Tensors = tuple[StoredTensor, ...]


@attrs.frozen
class PairHeader:
    """The two low-rank factors of a module, as the header of their file describes them.

    Args:
        a: First factor: one tensor, or one for each expert.
        b: Second factor, likewise.
        inputs: Width of the module's input; the vocabulary for embeddings.
        rank: Inner width.
        outputs: Width of the module's output.
        experts: Number of experts; None for a module without.
        scale: Factor of the product.
        transposed: True if the factors are stored as `[rank, inputs]` and `[outputs, rank]`.
        ties: True if an embedding's factors apply to the head that shares its weights, too.
    """

    a: Tensors
    b: Tensors
    inputs: int
    rank: int
    outputs: int
    experts: int | None
    scale: float
    transposed: bool
    ties: bool


@attrs.frozen
class AdapterHeader:
    """An adapter, without the numbers of its weights.

    Args:
        pairs: Low-rank factors by the path of their module.
        nbytes: Bytes of all factors.
        file: File of the weights.
    """

    pairs: Mapping[str, PairHeader]
    nbytes: int
    file: Path


def read_header(folder: Path, *, checked: bool = True) -> AdapterHeader:
    """Return the header of an adapter, in mlx-lm's layout or in PEFT's.

    Args:
        checked: See `read_tensors`.

    Raises:
        FileNotFoundError: Its weights have just gone.
        ValueError: One sentence that says why it is refused.
    """
    config = read_json_object(folder / ADAPTER_CONFIG)
    is_peft = "peft_type" in config
    (_check_peft if is_peft else _check_mlx)(config)
    file = folder / READ_ADAPTERS[is_peft]
    if not file.is_file():
        other = find_adapter(folder)
        held = f"; {other} is not read" if other is not None else ""
        raise ValueError(f"there is no {file.name} in its folder{held}")
    pairs = dict(_pairs(read_tensors(file, checked=checked), config, is_peft))
    nbytes = sum(each.nbytes for pair in pairs.values() for each in (*pair.a, *pair.b))
    return AdapterHeader(pairs, nbytes, file)


def _check_mlx(config: Mapping[str, Any]) -> None:
    kind = config.get("fine_tune_type", "lora")
    if kind != "lora":
        words = {"dora": "DoRA", "full": "a full fine-tuning"}.get(str(kind), "no LoRA")
        raise ValueError(f"its adapter_config.json says that it is {words}; only LoRA is applied to a base")
    parameters = config.get("lora_parameters")
    if not isinstance(parameters, dict) or "scale" not in parameters:
        raise ValueError("its adapter_config.json has no `lora_parameters.scale`")


def _check_peft(config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ValueError(f"its adapter_config.json says peft_type = {str(kind)[:30]!r}; only LORA is applied")
    if config.get("use_dora"):
        raise ValueError("its adapter_config.json says that it is DoRA; only LoRA is applied to a base")
    if config.get("bias", "none") != "none":
        raise ValueError("it trains biases (`bias`), which are the base's own here")
    for field in _MORE_THAN_LORA:
        if config.get(field):
            raise ValueError(f"its adapter_config.json has `{field}`; only plain LoRA is applied")
    first = config.get("init_lora_weights")
    if isinstance(first, str) and first.lower().startswith(_CHANGES_BASE):
        raise ValueError(f"it was trained against changed weights of its base ({first[:30]!r})")


def _pairs(
    tensors: Mapping[str, StoredTensor], config: Mapping[str, Any], is_peft: bool
) -> Iterator[tuple[str, PairHeader]]:
    """Yield the factors of each module, checked against each other."""
    found: dict[str, dict[str, dict[int, StoredTensor]]] = defaultdict(lambda: {"a": {}, "b": {}})
    embeddings: set[str] = set()
    seen: dict[str, str] = {}
    suffixes = _PEFT_SUFFIXES if is_peft else _MLX_SUFFIXES
    if len(tensors) > _MOST_TENSORS or max(map(len, tensors), default=0) > _LONGEST_NAME:
        raise ValueError(f"it has more than {_MOST_TENSORS:,} tensors, or names of more than {_LONGEST_NAME}")
    for name, tensor in tensors.items():
        suffix = next((each for each in suffixes if name.endswith(each)), None)
        if suffix is None:
            dora = "DoRA's" if name.endswith((".m", ".lora_magnitude_vector")) else "no low-rank factor"
            raise ValueError(f"{_shown(name)} in its weights is {dora}; only LoRA is applied to a base")
        _check_tensor(name, tensor)
        module, expert = name.removesuffix(suffix), 0
        if is_peft and (match := _EXPERT.fullmatch(module)) is not None:
            module, expert = f"{match[1]}.switch_mlp.{match[3]}", int(match[2])
        if "embedding" in suffix:
            embeddings.add(module)
        found[module][suffixes[suffix]][expert] = tensor
    if not found:
        raise ValueError("its weights hold no low-rank factor")
    for module, factors in found.items():
        if not factors["a"].keys() == factors["b"].keys() == set(range(len(factors["a"]))):
            raise ValueError(f"{_shown(module)} has only one of two low-rank factors in its weights")
        if (other := seen.setdefault(plain_path(module), module)) != module:
            raise ValueError(f"{_shown(module)} and {_shown(other)} in its weights are the same layer")
        a, b = (tuple(each[index] for index in sorted(each)) for each in factors.values())
        yield module, _pair(module, a, b, config, is_peft, module not in embeddings)


def _pair(
    module: str, a: Tensors, b: Tensors, config: Mapping[str, Any], is_peft: bool, ties: bool
) -> PairHeader:
    first, second = a[0].shape, b[0].shape
    stacked = len(first) == 3 and not is_peft
    transposed = is_peft or stacked
    fault = f"{_shown(module)} has factors of the shapes {first} and {second}"
    alike = {each.shape for each in a} == {first} and {each.shape for each in b} == {second}
    if not alike or not len(first) == len(second) == 2 + stacked or first[:-2] != second[:-2]:
        raise ValueError(fault)
    (inputs, rank), (inner, outputs) = (first[:-3:-1], second[:-3:-1]) if transposed else (first, second)
    if rank != inner:
        raise ValueError(fault)
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"{_shown(module)} has the rank {rank:,}; at most {MAX_RANK} is accepted")
    experts = len(a) if is_peft and "switch_mlp" in module else first[0] if stacked else None
    scale = _peft_scale(module, rank, config) if is_peft else config["lora_parameters"]["scale"]
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) <= _MAX_SCALE:
        raise ValueError(f"its adapter_config.json has no scale that is a number of at most {_MAX_SCALE:g}")
    return PairHeader(a, b, inputs, rank, outputs, experts, float(scale), transposed, ties)


def _peft_scale(module: str, rank: int, config: Mapping[str, Any]) -> float:
    alpha, pattern = config.get("lora_alpha", 8), config.get("alpha_pattern") or {}
    for name, value in pattern.items() if isinstance(pattern, dict) else ():
        if not re.fullmatch(r"[\w.]+", name):
            raise ValueError("its `alpha_pattern` has a regular expression; only names are read")
        if module == name or module.endswith(f".{name}"):
            alpha = value
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) <= _MAX_ALPHA:
        raise ValueError(f"its `lora_alpha` is no number of at most {_MAX_ALPHA:g}")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _check_tensor(name: str, tensor: StoredTensor) -> None:
    size = _ITEM_BYTES.get(tensor.dtype)
    if size is None:
        kinds = ", ".join(_ITEM_BYTES)
        raise ValueError(f"{_shown(name)} has the number format {_shown(tensor.dtype)}; {kinds} are read")
    if any(each < 1 for each in tensor.shape) or tensor.nbytes != size * math.prod(tensor.shape):
        raise ValueError(f"{_shown(name)} does not have the bytes of its shape {tensor.shape}")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:79]}…")


def plain_path(module: str) -> str:
    """Return a module's path without the components that differ among libraries."""
    return ".".join(each for each in module.split(".") if each not in _OUTER)


def check_fit(adapter: AdapterHeader, base: Path) -> None:
    """Compare an adapter with the headers of its base's weights, as far as these tell.

    Files may name experts and fused layers otherwise than the loaded model, which decides about these.

    Raises:
        ValueError: One sentence: the base lacks a target, or has it in another shape.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(base.glob("model*.safetensors")):
        for name, tensor in read_tensors(file, checked=False).items():
            if name.endswith(".weight"):
                packed = tensor.dtype == "U32"
                path = plain_path(name.removesuffix(".weight"))
                shapes[path] = tensor.shape[:-1] if packed else tensor.shape
    parents = {name.rpartition(".")[0] for name in shapes}
    layers = {(match[1], match[2]) for name in shapes if (match := _LAYER.match(name))}
    for module, pair in adapter.pairs.items():
        path, sizes = plain_path(module), (pair.outputs, pair.inputs)
        if (shape := shapes.get(path)) is None:
            layer = _LAYER.match(path)
            lacks = layer and (layer[1], "0") in layers and (layer[1], layer[2]) not in layers
            if lacks or path.rpartition(".")[0] in parents - {""}:
                raise ValueError(f"its base has no layer {_shown(module)}")
        elif len(shape) <= 2 and shape not in (sizes, sizes[::-1], sizes[:1], sizes[1:]):
            raise ValueError(
                f"{_shown(module)} is trained for {pair.inputs:,} inputs and {pair.outputs:,} outputs, but "
                f"its base has a layer of the shape {shape}"
            )


@attrs.define(eq=False)
class OpenedAdapter:
    """An adapter whose files have been read and checked; its weights wait for the model's thread.

    Args:
        digest: Digest of its configuration and its weights.
        content: Content of the weights' file; None once the model's thread has taken it.
    """

    folder: Path
    header: AdapterHeader
    digest: str
    content: bytes | None

    def take(self) -> bytes:
        """Return the content of the weights' file; read again if another load has taken it.

        Raises:
            OSError: The files are gone.
            ValueError: The files have changed since.
        """
        content, self.content = self.content, None
        if content is None:
            again = open_folder(self.folder, self.header.nbytes + MAX_CONFIG_BYTES)
            if again.digest != self.digest or again.content is None:
                raise ValueError("its files have just changed")
            content = again.content
        return content


def open_folder(folder: Path, max_bytes: int) -> OpenedAdapter:
    """Read and check an adapter.

    Args:
        max_bytes: Largest file of weights.

    Raises:
        FileNotFoundError: A file has just gone.
        ValueError: One sentence that says why it is refused.
    """
    header = read_header(folder)
    content = read_regular(header.file, max_bytes)
    digest = hashlib.blake2b(read_regular(folder / ADAPTER_CONFIG, MAX_CONFIG_BYTES), digest_size=16)
    digest.update(content)
    ends = max(each.data_offsets[1] for pair in header.pairs.values() for each in (*pair.a, *pair.b))
    if 8 + int.from_bytes(content[:8], "little") + ends > len(content):
        raise ValueError("its files have just changed")
    return OpenedAdapter(folder, header, digest.hexdigest(), content)


class AdapterFiles:
    """The opened adapters of one base model, each read again once its files change; for any thread.

    One is kept as long as a request or the model's thread needs it.

    Args:
        max_bytes: Largest weights of an adapter, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._opened: WeakValueDictionary[tuple[str, str], OpenedAdapter] = WeakValueDictionary()

    def open(self, asked: AppliedAdapter) -> OpenedAdapter:
        """Return the adapter of a request.

        Raises:
            ProblemError: 503 `load_failed` with the reason why it is refused.
        """
        folder = Path(asked.folder)
        with self._lock:
            key = asked.folder, fingerprint(folder)
            if (known := self._opened.get(key)) is None:
                try:
                    known = self._opened[key] = open_folder(folder, self.max_bytes)
                except (OSError, ValueError) as error:
                    raise ProblemError(load_failed(asked.name, f"{why_unusable(error)}.")) from None
            return known


def why_unusable(error: OSError | ValueError) -> str:
    """Return the reason of a refusal, as a clause."""
    return "its files have just gone" if isinstance(error, OSError) else str(error)
