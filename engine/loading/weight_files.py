"""Checks of weight files before a library reads them, since a truncated file can crash the process."""

from __future__ import annotations

from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open

from greenroom.engine.catalog.files.folder_contents import other_weights
from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.regular_files import check_folder, open_regular
from greenroom.engine.loading.stated_sizes import Shapes, check_sizes

_MAX_HEADER_BYTES = 100_000_000
"""Size limit of the header, as in the reference reader. Source: safetensors' README, "Format"."""


class StoredTensor(msgspec.Struct, frozen=True):
    """A tensor of a safetensors file, as the header describes it.

    Args:
        dtype: Name of the number format, such as `BF16`.
        data_offsets: Byte range in the file, from the end of the header.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    data_offsets: tuple[int, int] = (0, 0)

    @property
    def nbytes(self) -> int:
        """Size in the file in bytes."""
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
