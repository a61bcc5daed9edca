"""Loading of a generative model from its folder, on the thread that will use it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath
from types import CodeType
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.load_failures import OWN_CODE
from greenroom.engine.catalog.model_files import read_optional, text_config
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.quantization import quantize_kv
from greenroom.engine.loading.batching import BackgroundCheck, decide_batching
from greenroom.engine.loading.batching_patches import patch_for_batching
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import named_load_errors
from greenroom.engine.loading.openblas import multiply_by_openblas
from greenroom.engine.loading.read_weights import cast_weights, read_weights, recorded_files, weight_bytes
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.schemas.settings.settings import Settings

_BITS = 4


def load_text_lazily(folder: Path, settings: Settings) -> Any:
    """Return one of mlx-lm's models with lazy weights, which are not read yet."""
    from mlx_lm.utils import load_model as load_lazily

    tensors = check_weight_files(folder)
    check_packing(read_optional(folder / "config.json"), {name for file in tensors for name in file})
    model, _ = load_lazily(folder, lazy=True, trust_remote_code=settings.trust_remote_code)
    # Every layer is first created with random weights, which are never used. They stay alive through the
    # thread's random key until that is evaluated (60 kB for each load of a tiny model).
    mx.eval(mx.random.state)
    cast_weights(model, settings)
    multiply_by_openblas(model)
    return model


def load_model(
    folder: Path,
    settings: Settings,
    report_progress: Callable[[float], None] = lambda fraction: None,
    is_abandoned: Callable[[], bool] = lambda: False,
    reserve_memory: Callable[[int], None] = lambda nbytes: None,
    on_unchecked: Callable[[BackgroundCheck], None] = lambda proof: None,
    load_lazily: Callable[[Path, Settings], Any] = load_text_lazily,
) -> Any:
    """Return a generative model with all weights in memory, tested with one forward pass.

    Args:
        settings: Settings, of which `device`, `dtype`, `kv_bits` and `trust_remote_code` are used.
        report_progress: Callback with the fraction of the weights in memory, 0 to 1.
        reserve_memory: Function called with the bytes of the weights before they are read; may raise
            ProblemError.
        on_unchecked: Callback with the rest of the batch-invariance check, if there was no time for it; until
            it is done, the model's rows are computed alone.

    Raises:
        ProblemError: 503 `load_failed` if files are missing, broken, or do not fit the architecture.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    use_device(settings)
    began = time.perf_counter()
    with named_load_errors(folder):
        with recorded_files(is_abandoned) as files:
            model = load_lazily(folder, settings)
        reserve_memory(weight_bytes(model))
        read_weights(model, files, report_progress, is_abandoned)
        read = time.perf_counter()
        _warm_up(model)
        warm = time.perf_counter()
        patch_for_batching(model)
        unproved = decide_batching(model, folder, warm - began, warm - read)
        if unproved is not None:
            on_unchecked(unproved)
        return quantize_kv(model, settings.kv_bits)


def _warm_up(model: Any) -> None:
    """Run one token through the model, to find errors now and compile kernels before a request."""
    mx.eval(model(mx.array([[0]]), cache=caches.new_cache(model)))


def check_packing(config: Mapping[str, Any], weights: Collection[str]) -> None:
    """Make sure that mlx-lm can unpack a model's weights. Raises ValueError: one sentence: the weights are
    not packed as the configuration says, or mlx-lm cannot unpack them.
    """
    packing = config.get("quantization_config") or text_config(config).get("quantization_config")
    if "quantization" in config or not isinstance(packing, dict):
        return
    method = str(packing.get("quant_method")).upper()
    if method not in ("AWQ", "GPTQ"):
        return
    if not any(name.endswith(".qweight") for name in weights):
        raise ValueError(f"its config.json says that {method} packed its weights, but none of them is packed")
    if method == "GPTQ" or any(name.endswith(".g_idx") for name in weights):
        raise ValueError("its weights are packed by GPTQ, in an order that mlx-lm does not read")
    bits = packing.get("bits", _BITS)
    if bits != _BITS:
        raise ValueError(
            f"its weights have {str(bits)[:10]} bits each by AWQ, of which mlx-lm reads {_BITS} alone"
        )


# Refuse to run Python code from a model's folder unless the operator trusts it.
#
# Some of mlx-vlm's processors always tell transformers to trust a folder, so that the code named in its
# `auto_map` would run.

_COPIES = "transformers_modules"
"""Folder in which transformers runs copies of models' code, and from which it imports them."""


class _Thread(threading.local):
    forbids = False


_thread = _Thread()
_lock = threading.Lock()
_installed = False


class ForeignCodeError(RuntimeError):
    """A library was about to run code of a model's folder."""


def allow_foreign_code(trusted: bool) -> None:
    """Allow this thread to run models' own code from now on, or refuse it. `trusted`: True if the operator
    trusts the models' makers (setting `trust_remote_code`).
    """
    global _installed
    _thread.forbids = not trusted
    with _lock:
        if not _installed:
            sys.addaudithook(_refuse)
            _installed = True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    """Raise for `exec` audit events of code from a model's folder, while this thread forbids it."""
    if event != "exec" or not _thread.forbids or not isinstance(arguments[0], CodeType):
        return
    if _COPIES in PurePath(arguments[0].co_filename).parts:
        raise ForeignCodeError(OWN_CODE)
