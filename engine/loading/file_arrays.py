"""Lazy arrays of `mx.load`: the file ranges behind them, and the weights computed from them."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx

from greenroom.schemas.logs import get_logger

PIECE_BYTES = 16 * 1024 * 1024
"""Bytes of a file read between two checks whether to continue."""

_GROUP_BYTES = 256 * 1024 * 1024
"""Bytes read before MLX loads them; they must stay in the page cache meanwhile."""

_LOAD = re.compile(r'\{ (\d+) \[label ="Load"')
"""Pattern of a file-reading operation in an exported MLX graph, with its address."""

log = get_logger(__name__)


@attrs.frozen(eq=False)
class FileArray:
    """An array that is not read yet, with its byte range in a file."""

    array: mx.array
    path: Path
    begin: int
    end: int


class FileArrays:
    """The lazy arrays of one load's files.

    A weight may be computed from several of them (stacked experts, casts, slices), as MLX's graph tells.
    Arrays are removed when they are read, so that none outlives its weight.
    """

    def __init__(self) -> None:
        self._by_operation: dict[int, FileArray] = {}
        self._read_whole = set[Path]()

    def record(self, path: Path, loaded: Any) -> None:
        """Add the result of `mx.load` for a file: an array or a dictionary, with or without metadata."""
        found = loaded[0] if isinstance(loaded, tuple) else loaded
        arrays: Mapping[str, mx.array] = found if isinstance(found, dict) else {"": found}
        operations = _read_operations(arrays.values())
        if len(operations) != len(arrays):
            # Another MLX version may export graphs differently. The model still loads, as it does on a CPU.
            log.warning("weights are not read ahead", file=path.name, known=len(operations), of=len(arrays))
            return
        size, places = path.stat().st_size, _places(path)
        for operation, (name, array) in zip(operations, arrays.items(), strict=True):
            begin, end = places.get(name, (0, size))
            self._by_operation[operation] = FileArray(array, path, begin, end)

    def read(self, arrays: Iterable[mx.array], between: Callable[[float], None]) -> None:
        """Read the file arrays behind these arrays into memory, if they are not there yet.

        Python reads the bytes into the page cache, from where MLX loads them, on the CPU.

        Args:
            arrays: Arrays to be evaluated.
            between: Callback after each piece, with the fraction read, 0 to 1; may raise.

        Raises:
            ValueError: A file can no longer be read, or has become shorter.
        """
        wanted = self._take(arrays)
        total, done = sum(file.end - file.begin for file in wanted) or 1, 0
        for group in _groups(wanted):
            for path, begin, end in _ranges(file for file in group if self._is_unread(file)):
                for count in _read_pieces(path, begin, end):
                    done += count
                    between(done / total)
            mx.eval([file.array for file in group])

    def _take(self, arrays: Iterable[mx.array]) -> list[FileArray]:
        operations = _read_operations(arrays)
        taken = [self._by_operation.pop(number) for number in operations if number in self._by_operation]
        return sorted(taken, key=lambda file: (file.path, file.begin))

    def _is_unread(self, file: FileArray) -> bool:
        """Return whether the array's bytes must be read; files of unknown format are read once as a whole."""
        if file.begin > 0:
            return True
        unread = file.path not in self._read_whole
        self._read_whole.add(file.path)
        return unread


def _read_operations(arrays: Iterable[mx.array]) -> list[int]:
    """Return the addresses of the file-reading operations behind these arrays, each once."""
    graph = io.StringIO()
    mx.export_to_dot(graph, list(arrays))
    return [int(number) for number in _LOAD.findall(graph.getvalue())]


def _places(path: Path) -> dict[str, tuple[int, int]]:
    """Return the byte ranges of a safetensors file's arrays; empty for another format.

    Source: the format's description, github.com/huggingface/safetensors.
    """
    if path.suffix != ".safetensors":
        return {}
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    first = 8 + length
    offsets = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (first + begin, first + end) for name, (begin, end) in offsets.items()}


def _groups(files: list[FileArray]) -> Iterator[list[FileArray]]:
    group, size = list[FileArray](), 0
    for file in files:
        if group and size + file.array.nbytes > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.array.nbytes
    if group:
        yield group


def _ranges(files: Iterable[FileArray]) -> Iterator[tuple[Path, int, int]]:
    """Yield the arrays' byte ranges, adjacent ones merged; the arrays are in file order."""
    for path, its_arrays in itertools.groupby(files, lambda file: file.path):
        begin = end = -1
        for file in its_arrays:
            if file.begin == end:
                end = file.end
                continue
            if end > begin:
                yield path, begin, end
            begin, end = file.begin, file.end
        if end > begin:
            yield path, begin, end


def _read_pieces(path: Path, begin: int, end: int) -> Iterator[int]:
    """Read a range of a file; yield the bytes of each piece.

    Python releases the GIL meanwhile, so that a hanging disk blocks only this thread.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while begin < end:
                count = len(os.pread(descriptor, min(PIECE_BYTES, end - begin), begin))
                if count == 0:
                    raise ValueError(f"{path.name} has become shorter while it was read")
                begin += count
                yield count
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror or type(error).__name__})") from error
