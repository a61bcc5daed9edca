"""Checks of weight files before a library reads them, since a truncated file can crash the process."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open

from greenroom.engine.catalog.load_failures import other_weights
from greenroom.engine.catalog.model_files import check_folder, open_regular, read_optional

_MAX_HEADER_BYTES = 100_000_000
"""Size limit of the header, as in the reference reader. Source: safetensors' README, "Format"."""


class StoredTensor(msgspec.Struct, frozen=True):
    """A tensor of a safetensors file, as the header describes it. `dtype`: name of the number format, such as
    `BF16`; `data_offsets`: byte range in the file, from the end of the header.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    data_offsets: tuple[int, int] = (0, 0)

    @property
    def nbytes(self) -> int:
        return self.data_offsets[1] - self.data_offsets[0]


def check_weight_files(folder: Path, *, checked: bool = True) -> list[Shapes]:
    """Check that all weight files are present and complete, and match the sizes in config.json.

    Args:
        checked: See `read_tensors`.

    Returns:
        The tensors of each file.

    Raises:
        ValueError: One sentence that names the file and the fault.
    """
    check_folder(folder)
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ValueError(f"there are no weights (model*.safetensors) in its folder{other_weights(folder)}")
    index = read_optional(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict):
        present = {file.name for file in files}
        missing = sorted({str(name) for name in index.values()} - present)
        # A repacked model may keep a stale index beside one complete file.
        if missing and "model.safetensors" not in present:
            raise ValueError(f"{missing[0]} is missing ({len(missing)} of its weight files are)")
    tensors = [read_header(file, checked=checked) for file in files]
    check_sizes(read_optional(folder / "config.json"), tensors)
    return tensors


def read_header(file: Path, *, checked: bool = True) -> Shapes:
    """Return the tensor shapes of a safetensors file, after comparing its length with its header.

    Python reads the header first, without the GIL: MLX and safetensors open files with the GIL held, so a
    hanging disk would block every thread.

    Raises:
        ValueError: One sentence that describes the fault.
    """
    return {name: tensor.shape for name, tensor in read_tensors(file, checked=checked).items()}


def read_tensors(file: Path, *, checked: bool = True) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file by name; reads only its header.

    Args:
        checked: True to let safetensors check the file, for which it imports NumPy; else only its length is.

    Raises:
        ValueError: One sentence that describes the fault.
    """
    header = _header(file)
    if checked:
        _check_length(file)
    try:
        tensors = msgspec.json.decode(header, type=dict[str, StoredTensor | None])
    except msgspec.DecodeError as error:  # safetensors may accept what msgspec rejects
        raise ValueError(f"{file.name} is no whole safetensors file ({str(error)[:100]})") from None
    found = {name: tensor for name, tensor in tensors.items() if tensor and name != "__metadata__"}
    ends = max((tensor.data_offsets[1] for tensor in found.values()), default=0)
    if 8 + len(header) + ends > file.stat().st_size:
        raise ValueError(f"{file.name} is no whole safetensors file (it is shorter than its header says)")
    return found


def _check_length(file: Path) -> None:
    try:
        with safe_open(file, framework="numpy"):
            pass
    except SafetensorError as error:
        reason = str(error).removeprefix("Error while deserializing header: ")
        raise ValueError(f"{file.name} is no whole safetensors file ({reason[:100]})") from None
    except OSError as error:
        raise ValueError(f"{file.name} cannot be read ({error.strerror or type(error).__name__})") from error


def _header(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            length = int.from_bytes(opened.read(8), "little")
            return opened.read(min(length, _MAX_HEADER_BYTES))
    except OSError as error:
        raise ValueError(f"{file.name} cannot be read ({error.strerror or type(error).__name__})") from error


# Validation of the sizes in config.json against the actual tensors, before a model is built from them.
#
# Building a model takes time and memory of its own: 200,000 layers are 600 MB of Python objects before the
# first missing weight is noticed.

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of a file's tensors by name."""

_LAYERS = frozenset({"block", "blocks", "depth", "depths", "layer", "layers", "stage", "stages"})
"""Words that name consecutive modules; fields that end with one or say `num` or `n` state their number."""

_NO_COUNT = frozenset(
    {
        *("dim", "dims", "end", "every", "first", "freq", "id", "ids", "idx", "idxs", "index", "indexes"),
        *("indices", "interval", "last", "norm", "period", "size", "start", "step", "type", "types"),
        *("bins", "proposals", "topk"),
    }
)
_EXPERTS = ("expert", "experts")
_WIDTHS = frozenset(
    {
        *("d_ff", "d_model", "decoder_ffn_dim", "embed_dim", "encoder_ffn_dim", "ffn_dim", "head_dim"),
        *("hidden_dim", "hidden_size", "intermediate_size", "mlp_dim", "moe_intermediate_size", "n_embd"),
        *("n_head", "n_heads", "n_vocab", "num_attention_heads", "num_heads", "num_key_value_heads"),
        *("vocab_size", "width"),
    }
)

_NUMBERED = re.compile(r"(\w+)\.(\d+)(?=\.|$)")
_TIMES, _MORE = 4, 64
"""Factor and addend of the largest accepted number of layers or experts: architectures reuse layers, leave
some empty, or build a few without weights."""

_MOST_LAYERS, _LEAST_PER_LAYER = 1_024, 1_024
"""Limits on layers: their number, and the fewest weights that each of many has on average. Published models
have up to some 130 layers, each with millions of weights."""

_WIDER, _WIDEST_PLAIN = 64, 65_536
"""Factor of the largest accepted width over that of the widest tensor, since quantized weights are packed;
and a width in numbers that is always accepted."""


def check_sizes(config: Mapping[str, Any], files: Sequence[Shapes]) -> None:
    """Check that a configuration builds nothing far larger than its tensors. Raises ValueError: one sentence
    with the field and the actual size.
    """
    # An empty tensor may state any size.
    shapes = [shape for file in files for shape in file.values() if 0 not in shape]
    if not shapes:
        return
    layers, experts = _count_numbered(name for file in files for name in file)
    most_layers, said_layers = _most_layers(layers, sum(map(math.prod, shapes)))
    widest = max((size for shape in shapes for size in shape), default=1)
    experts = max(experts, *(shape[0] for shape in shapes if len(shape) > 2), 0)
    for field, value in _integers(config):
        words = field.split("_")
        if field in _WIDTHS:
            most, there = max(_WIDER * widest, _WIDEST_PLAIN), f"no weight is wider than {widest:,}"
        elif words[-1] in _EXPERTS:
            most, there = _TIMES * experts + _MORE, f"there are weights of {experts:,}"
        elif _counts_layers(words):
            most, there = most_layers, said_layers
        else:
            continue
        if value > most:
            raise ValueError(f"its config.json states {field} = {value:,}, but {there}")


def _most_layers(numbered: int, size: int) -> tuple[int, str]:
    """Return the largest number of layers that a configuration may state, and the reason for an error.

    Names alone prove nothing: a file of 200 kB can hold 200,000 tensors of one number each.
    """
    most = _TIMES * numbered + _MORE
    held = _TIMES * _MORE + size // _LEAST_PER_LAYER
    if most <= min(held, _MOST_LAYERS):
        return most, f"there are weights of {numbered:,}"
    if held < _MOST_LAYERS:
        return held, f"its weights hold no more than {size:,} numbers"
    return _MOST_LAYERS, f"at most {_MOST_LAYERS:,} are built"


def _counts_layers(words: Sequence[str]) -> bool:
    """Return whether a field states a number of layers; `block_multiple_of` is a property of them."""
    if not _NO_COUNT.isdisjoint(words) or _LAYERS.isdisjoint(words):
        return False
    if words[-1] not in _LAYERS:
        return not {"num", "n"}.isdisjoint(words)
    # `window_per_layer` states no number of layers, but `layers_per_block` does.
    return words[-2:-1] != ["per"] or not _LAYERS.isdisjoint(words[:-2])


def _count_numbered(names: Iterable[str]) -> tuple[int, int]:
    numbers: dict[str, set[str]] = defaultdict(set)
    for name in names:
        for word, number in _NUMBERED.findall(name):
            numbers[word].add(number)
    layers = max((len(found) for word, found in numbers.items() if "expert" not in word), default=0)
    return layers, max((len(found) for word, found in numbers.items() if "expert" in word), default=0)


def _integers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    pending: list[tuple[str, Any]] = list(config.items())
    while pending:
        field, value = pending.pop()
        if isinstance(value, Mapping):
            pending += value.items()
        elif isinstance(value, list):
            if any(isinstance(inner, int) for inner in value):
                yield field, len(value)  # as `depths` has one for each stage
            pending += ((field, inner) for inner in value if isinstance(inner, int | Mapping))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield field, value
