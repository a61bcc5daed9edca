"""Reading of weights from files into memory, layer by layer, for models of every type."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import attrs
import mlx.core as mx

from greenroom.engine.loading.devices import computes_on_gpu, weight_type
from greenroom.engine.loading.libraries import LoadAbandonedError
from greenroom.engine.resources.residence import watch_weights
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

_LAYER = re.compile(r"^(.*?\.?layers\.\d+)\.")
_CHUNK_BYTES = 256 * 1024 * 1024
"""Bytes read between two progress reports, after each of which the load can be abandoned."""


def load_arrays(file: Path) -> dict[str, mx.array]:
    return cast("dict[str, mx.array]", mx.load(str(file)))


def is_packed(model: Any) -> bool:
    from mlx.utils import tree_flatten

    return any(value.dtype == mx.uint32 for _, value in tree_flatten(model.parameters()))


def cast_weights(model: Any, settings: Settings, *, slow: bool = False) -> mx.Dtype | None:
    """Cast floating-point weights as the settings say, except those that the architecture excludes.

    Args:
        slow: See `weight_type`; quantized weights are slow without it.

    Returns:
        Type that they were cast to; None if they keep theirs.
    """
    from mlx.utils import tree_map_with_path

    if (name := weight_type(settings, slow or is_packed(model))) == "auto":
        return None
    dtype: mx.Dtype = getattr(mx, name)
    may_cast = getattr(model, "cast_predicate", lambda path: True)

    def cast_one(path: str, value: mx.array) -> mx.array:
        floating = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(dtype) if floating and may_cast(path) else value

    model.update(tree_map_with_path(cast_one, model.parameters()))
    return dtype


def weight_bytes(model: Any) -> int:
    """Return the bytes of a model's weights, read or not."""
    from mlx.utils import tree_flatten

    return sum(value.nbytes for _, value in tree_flatten(model.parameters()))


def read_weights(
    model: Any, files: FileArrays | None, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
) -> None:
    """Read the weights of a lazily loaded model, layer by layer.

    Args:
        files: Lazy arrays recorded during the load (`recorded_files`): each chunk's bytes are read before the
            chunk is evaluated. None on a CPU, where evaluation may wait for the disk.
        progress: Callback with the fraction in memory, 0 to 1.
        is_abandoned: Predicate, called between chunks and pieces of files, that returns True to stop.

    Raises:
        LoadAbandonedError: `is_abandoned` returned True.
        ValueError: A file can no longer be read.
    """
    from mlx.utils import tree_flatten

    weights = tree_flatten(model.parameters())
    total = sum(value.nbytes for _, value in weights) or 1
    done = size = 0

    def go_on(fraction: float) -> None:
        if is_abandoned():
            raise LoadAbandonedError
        progress((done + fraction * size) / total)

    for chunk in _chunks(weights):
        if is_abandoned():
            raise LoadAbandonedError
        size = sum(value.nbytes for value in chunk)
        if files is not None:
            files.read(chunk, go_on)
        mx.eval(chunk)
        done += size
        progress(done / total)
    watch_weights(weights)


def _chunks(weights: list[tuple[str, mx.array]]) -> Iterator[list[mx.array]]:
    for _, layer in itertools.groupby(weights, lambda weight: _layer_of(weight[0])):
        chunk, size = list[mx.array](), 0
        for _, value in layer:
            if chunk and size + value.nbytes > _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(value)
            size += value.nbytes
        yield chunk


def _layer_of(name: str) -> str:
    match = _LAYER.match(name)
    return match.group(1) if match else ""


PIECE_BYTES = 16 * 1024 * 1024  # Bytes of a file read between two checks whether to continue

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
        operations = read_operations(arrays.values())
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
        operations = read_operations(arrays)
        taken = [self._by_operation.pop(number) for number in operations if number in self._by_operation]
        return sorted(taken, key=lambda file: (file.path, file.begin))

    def _is_unread(self, file: FileArray) -> bool:
        """Return whether the array's bytes must be read; files of unknown format are read once as a whole."""
        if file.begin > 0:
            return True
        unread = file.path not in self._read_whole
        self._read_whole.add(file.path)
        return unread


def read_operations(arrays: Iterable[mx.array]) -> list[int]:
    """Return the graph addresses of the operations that will read these lazy arrays."""
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


class _Thread(threading.local):
    files: FileArrays | None = None
    is_abandoned: Callable[[], bool] = staticmethod(lambda: False)


_thread = _Thread()
_lock = threading.Lock()
_loads = 0
_load, _eval = mx.load, mx.eval


@contextmanager
def recorded_files(is_abandoned: Callable[[], bool] = lambda: False) -> Iterator[FileArrays | None]:
    """Record this thread's `mx.load` calls if models compute on a GPU; yield None on a CPU.

    GPU commands wait for arrays that are not read yet, and the system kills commands that take several
    seconds. Some models evaluate parts during construction, so files are read before evaluations within, too.

    Raises:
        LoadAbandonedError: `is_abandoned` returned True during an evaluation within.
        ValueError: A file could not be read during an evaluation within.
    """
    global _load, _eval, _loads
    if not computes_on_gpu():
        yield None
        return
    with _lock:
        if _loads == 0:
            _load, _eval = mx.load, mx.eval
            _set_functions(_recording_load, _reading_eval)
        _loads += 1
    files, outer = FileArrays(), (_thread.files, _thread.is_abandoned)
    _thread.files, _thread.is_abandoned = files, is_abandoned
    try:
        yield files
    finally:
        _thread.files, _thread.is_abandoned = outer
        with _lock:
            _loads -= 1
            if _loads == 0:
                _set_functions(_load, _eval)


def _set_functions(load: Callable[..., Any], evaluate: Callable[..., Any]) -> None:
    setattr(mx, "load", load)  # noqa: B010
    setattr(mx, "eval", evaluate)  # noqa: B010


def _recording_load(file: Any, *positional: Any, **named: Any) -> Any:
    loaded = _load(file, *positional, **named)
    if _thread.files is not None and isinstance(file, str | Path):
        _thread.files.record(Path(file), loaded)
    return loaded


def _reading_eval(*trees: Any) -> None:
    if _thread.files is not None:
        from mlx.utils import tree_flatten

        leaves = [leaf for _, leaf in tree_flatten(trees)]
        _thread.files.read([leaf for leaf in leaves if isinstance(leaf, mx.array)], _go_on)
    _eval(*trees)


def _go_on(_: float) -> None:
    if _thread.is_abandoned():
        raise LoadAbandonedError
