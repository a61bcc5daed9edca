"""Weights from a folder into memory, layer by layer, on the thread that will use them."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.load_failures import failure_reason
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.quantization import quantize_kv
from greenroom.engine.loading.batching.decide import decide_batching
from greenroom.engine.loading.batching.idle_proof import IdleProof
from greenroom.engine.loading.batching_patches.patch_for_batching import patch_for_batching
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings import Settings

_LAYER = re.compile(r"^(.*?\.?layers\.\d+)\.")
_CHUNK_BYTES = 256 * 1024 * 1024
"""Bytes that are read before progress is reported and the load can be abandoned."""


class LoadAbandonedError(Exception):
    """The load was given up between two chunks of weights."""


def load_model(
    folder: Path,
    settings: Settings,
    report_progress: Callable[[float], None] = lambda fraction: None,
    is_abandoned: Callable[[], bool] = lambda: False,
    reserve_memory: Callable[[int], None] = lambda nbytes: None,
    on_unproved: Callable[[IdleProof], None] = lambda proof: None,
) -> Any:
    """Return one of mlx-lm's models with all its weights in memory, tried with one forward pass.

    Args:
        settings: `device`, `dtype`, `kv_bits` and `trust_remote_code` matter here.
        report_progress: Called with the fraction of the weights that are in memory, 0 to 1.
        is_abandoned: Called between chunks of the weights.
        reserve_memory: Called with the bytes of the weights before they are read; may raise ProblemError.
        on_unproved: Called with the rest of a proof for which there was no time, if there is one: until it
            is computed, so are the model's rows alone.

    Raises:
        ProblemError: 503 `load_failed`: files are missing, broken, or do not fit the architecture.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    use_device(settings)
    began = time.perf_counter()
    try:
        model = _load_lazily(folder, settings)
        reserve_memory(_weight_bytes(model))
        _read_weights(model, report_progress, is_abandoned)
        read = time.perf_counter()
        _warm_up(model)
        warm = time.perf_counter()
        patch_for_batching(model)
        unproved = decide_batching(model, folder, warm - began, warm - read)
        if unproved is not None:
            on_unproved(unproved)
        return quantize_kv(model, settings.kv_bits)
    except (ProblemError, LoadAbandonedError, KeyboardInterrupt):
        raise
    except BaseException as error:  # anything may come out of foreign code, `exit()` and Rust's panics too
        raise ProblemError(load_failed(folder.name, failure_reason(error, folder))) from error


def _load_lazily(folder: Path, settings: Settings) -> Any:
    """Return the model with weights that are named, but not read yet."""
    from mlx_lm.utils import load_model as load_lazily

    check_weight_files(folder)
    model, _ = load_lazily(folder, lazy=True, trust_remote_code=settings.trust_remote_code)
    # Every layer was given random weights first, which are never read. They stay alive through the
    # thread's random key until it is evaluated itself (60 kB for each load of a tiny model).
    mx.eval(mx.random.state)
    if settings.dtype != "auto":
        _cast(model, getattr(mx, settings.dtype))
    return model


def _cast(model: Any, dtype: mx.Dtype) -> None:
    """Give floating weights another type, but for those that the architecture keeps as they are."""
    from mlx.utils import tree_map_with_path

    may_cast = getattr(model, "cast_predicate", lambda path: True)

    def cast(path: str, value: mx.array) -> mx.array:
        floating = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(dtype) if floating and may_cast(path) else value

    model.update(tree_map_with_path(cast, model.parameters()))


def _weight_bytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    return sum(value.nbytes for _, value in tree_flatten(model.parameters()))


def _read_weights(model: Any, progress: Callable[[float], None], abandoned: Callable[[], bool]) -> None:
    from mlx.utils import tree_flatten

    weights = tree_flatten(model.parameters())
    total = sum(value.nbytes for _, value in weights) or 1
    done = 0
    for chunk in _chunks(weights):
        if abandoned():
            raise LoadAbandonedError
        mx.eval(chunk)
        done += sum(value.nbytes for value in chunk)
        progress(done / total)


def _chunks(weights: list[tuple[str, mx.array]]) -> Iterator[list[mx.array]]:
    """Yield weights of one layer at a time, and of no more than a chunk's bytes at once."""
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


def _warm_up(model: Any) -> None:
    """Run one token through: what cannot work fails now, and kernels are built before a request waits."""
    mx.eval(model(mx.array([[0]]), cache=caches.new_cache(model)))
