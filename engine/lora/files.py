"""Adapters (LoRA) on disk: their configuration, the header of their weights, and the checks of both.

Nothing here imports MLX: folders are listed, and their weights read, on threads without a device.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG, ADAPTERS, READ_ADAPTERS
from greenroom.engine.catalog.model_files import MAX_CONFIG_BYTES, read_json_object, read_regular
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
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
"""Initializations of PEFT that train against changed weights of the base."""


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

    a: tuple[StoredTensor, ...]
    b: tuple[StoredTensor, ...]
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
        base: Name of the base model, as the training program has written it.
        pairs: Low-rank factors by the path of their module.
        nbytes: Bytes of all factors.
        file: File of the weights.
    """

    base: str
    pairs: Mapping[str, PairHeader]
    nbytes: int
    file: Path

    @property
    def rank(self) -> int:
        """Largest rank."""
        return max(pair.rank for pair in self.pairs.values())


def read_header(folder: Path, *, checked: bool = True) -> AdapterHeader:
    """Return the header of an adapter, in mlx-lm's layout or in PEFT's.

    Args:
        checked: See `read_tensors`.

    Raises:
        ValueError: One sentence that says why it is refused.
    """
    config = read_json_object(folder / ADAPTER_CONFIG)
    is_peft = "peft_type" in config
    name = ADAPTERS[1] if is_peft else ADAPTERS[0]
    (_check_peft if is_peft else _check_mlx)(config)
    if not (folder / name).is_file():
        other = next((each for each in ADAPTERS if (folder / each).is_file()), None)
        held = f"; {other} is not read" if other is not None else ""
        raise ValueError(f"there is no {name} in its folder{held}")
    file = folder / name
    try:
        tensors = read_tensors(file, checked=checked)
    except FileNotFoundError:
        raise ValueError(f"there is no {name} in its folder") from None
    base = config.get("base_model_name_or_path" if is_peft else "model")
    pairs = dict(_pairs(tensors, config, is_peft))
    nbytes = sum(each.nbytes for pair in pairs.values() for each in (*pair.a, *pair.b))
    return AdapterHeader(base if isinstance(base, str) else "", pairs, nbytes, file)


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
    for field in ("modules_to_save", "trainable_token_indices"):
        if config.get(field):
            raise ValueError(f"it replaces whole parts of its base (`{field}`); only LoRA is applied")
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
        a, b = (tuple(factors[each][index] for index in sorted(factors[each])) for each in "ab")
        numbered = "switch_mlp" in module and is_peft
        indices = [sorted(factors[each]) for each in "ab"]
        if indices[0] != indices[1] or indices[0] != [*range(len(a))]:
            raise ValueError(f"{_shown(module)} has only one of two low-rank factors in its weights")
        if (other := seen.setdefault(plain_path(module), module)) != module:
            raise ValueError(f"{_shown(module)} and {_shown(other)} in its weights are the same layer")
        yield module, _pair(module, a, b, config, is_peft, numbered, module not in embeddings)


def _pair(
    module: str,
    a: tuple[StoredTensor, ...],
    b: tuple[StoredTensor, ...],
    config: Mapping[str, Any],
    is_peft: bool,
    numbered: bool,
    ties: bool,
) -> PairHeader:
    shapes = a[0].shape, b[0].shape
    same = all(each.shape == shapes[0] for each in a) and all(each.shape == shapes[1] for each in b)
    stacked = len(shapes[0]) == 3 and not is_peft
    if not same or len(shapes[0]) != len(shapes[1]) or not (stacked or len(shapes[0]) == 2):
        raise ValueError(f"{_shown(module)} has factors of the shapes {shapes[0]} and {shapes[1]}")
    experts = len(a) if numbered else shapes[0][0] if stacked else None
    transposed = is_peft or stacked
    (first, second), (third, fourth) = shapes[0][-2:], shapes[1][-2:]
    inputs, rank, inner, outputs = (
        (second, first, fourth, third) if transposed else (first, second, third, fourth)
    )
    if rank != inner or (stacked and shapes[0][0] != shapes[1][0]):
        raise ValueError(f"{_shown(module)} has factors of the shapes {shapes[0]} and {shapes[1]}")
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"{_shown(module)} has the rank {rank:,}; at most {MAX_RANK} is accepted")
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
                shapes[plain_path(name.removesuffix(".weight"))] = (
                    tensor.shape[:-1] if packed else tensor.shape
                )
    parents = {name.rpartition(".")[0] for name in shapes}
    layers = {(match[1], match[2]) for name in shapes if (match := _LAYER.match(name))}
    for module, pair in adapter.pairs.items():
        path = plain_path(module)
        if (shape := shapes.get(path)) is None:
            layer = _LAYER.match(path)
            lacks = layer and (layer[1], "0") in layers and (layer[1], layer[2]) not in layers
            if lacks or path.rpartition(".")[0] in parents - {""}:
                raise ValueError(f"its base has no layer {_shown(module)}")
        elif not _fits(pair, shape):
            raise ValueError(
                f"{_shown(module)} is trained for {pair.inputs:,} inputs and {pair.outputs:,} outputs, but "
                f"its base has a layer of the shape {shape}"
            )


def _fits(pair: PairHeader, shape: tuple[int, ...]) -> bool:
    """Return whether factors may fit weights of a shape, whose packed last axis is left out."""
    if len(shape) == 1:  # packed: outputs, or the vocabulary of an embedding
        return shape[0] in (pair.outputs, pair.inputs)
    if len(shape) != 2:
        return True
    return shape in ((pair.outputs, pair.inputs), (pair.inputs, pair.outputs))


@attrs.define(eq=False)
class OpenedAdapter:
    """An adapter whose files have been read and checked; its weights wait for the model's thread.

    Args:
        folder: Folder of its files.
        digest: Digest of its configuration and its weights.
        content: Content of the weights' file; None once the model's thread has taken it.
    """

    folder: Path
    header: AdapterHeader
    digest: str
    content: bytes | None

    def take(self) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
        """Return the factors of each module; read again if another load has taken them.

        Raises:
            ValueError: The files have changed since.
        """
        if self.content is None:
            again = open_folder(self.folder, self.header.nbytes + MAX_CONFIG_BYTES)
            if again.digest != self.digest:
                raise ValueError("its files have just changed")
            self.content = again.content
        content, self.content = self.content, None
        assert content is not None
        start = 8 + int.from_bytes(content[:8], "little")
        view = memoryview(content)

        def read(tensors: Iterable[StoredTensor]) -> list[Tensor]:
            spans = [(each, each.data_offsets) for each in tensors]
            return [
                Tensor(each.dtype, each.shape, view[start + begin : start + end])
                for each, (begin, end) in spans
            ]

        return {module: (read(pair.a), read(pair.b)) for module, pair in self.header.pairs.items()}


@attrs.frozen(eq=False)
class Tensor:
    """The bytes of a stored tensor.

    Args:
        dtype: Name of the number format in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    content: memoryview


def open_folder(folder: Path, max_bytes: int) -> OpenedAdapter:
    """Read and check an adapter.

    Args:
        max_bytes: Largest file of weights.

    Raises:
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


_MOST_KNOWN = 64


class AdapterFiles:
    """The opened adapters of one base model, each read again once its files change; for any thread.

    Args:
        max_bytes: Largest weights of an adapter, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._known: dict[str, tuple[tuple[int, ...], OpenedAdapter]] = {}

    def open(self, asked: AppliedAdapter) -> OpenedAdapter:
        """Return the adapter of a request.

        Raises:
            ProblemError: 503 `load_failed` with the reason why it is refused.
        """
        folder = Path(asked.folder)
        with self._lock:
            try:
                stamp = _stamp(folder)
                before, known = self._known.get(asked.folder, ((), None))
                if known is None or before != stamp:
                    known = open_folder(folder, self.max_bytes)
                    self._known[asked.folder] = stamp, known
                    if len(self._known) > _MOST_KNOWN:
                        del self._known[next(iter(self._known))]
            except (OSError, ValueError) as error:
                reason = "its files are gone" if isinstance(error, OSError) else str(error)
                raise ProblemError(load_failed(asked.name, f"{reason}.")) from None
            return known


def _stamp(folder: Path) -> tuple[int, ...]:
    found: list[int] = []
    for name in (ADAPTER_CONFIG, *READ_ADAPTERS):
        try:
            status = os.stat(folder / name)
        except FileNotFoundError:
            continue
        found += [status.st_ino, status.st_size, status.st_mtime_ns]
    return tuple(found)
