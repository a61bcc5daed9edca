"""Attention of vision towers, taken out of the compiled functions that would hide it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import mlx.core as mx

_LIBRARY = "mlx_vlm.models."
_LANGUAGE = ".language"
"""The end of modules that are never split, and so stay compiled."""

_ATTENTION = "scaled_dot_product_attention"


def uncompile_attention() -> None:
    """Replace compiled functions of imported towers that attend by the functions that were compiled.

    A compiled function is traced once, on arrays that nothing can evaluate, and is not called again for the
    same shapes: attention in it could not be computed in pieces. Compiling spares nothing there, since it
    fuses elementwise operations alone. It happens once for all threads, before a tower is first called;
    MLX's own switch would have all models of the process run uncompiled meanwhile.
    """
    for module in [module for name, module in sys.modules.items() if _may_be_split(name)]:
        for name, function in attending_functions(module).items():
            setattr(module, name, _plain(function))


def attending_functions(module: ModuleType) -> dict[str, Any]:
    """Return the compiled functions of a module that attend, by name."""
    compiled = type(mx.compile(lambda array: array))
    found = {name: value for name, value in vars(module).items() if isinstance(value, compiled)}
    return {name: value for name, value in found.items() if _attends(value.__code__)}


def _may_be_split(module: str) -> bool:
    return module.startswith(_LIBRARY) and not module.endswith(_LANGUAGE)


def _attends(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return _ATTENTION in code.co_names or any(map(_attends, inner))


def _plain(compiled: Any) -> Callable[..., Any]:
    """Return what was compiled: MLX's object has all attributes of that function."""
    plain = FunctionType(
        compiled.__code__,
        compiled.__globals__,
        compiled.__name__,
        compiled.__defaults__,
        compiled.__closure__,
    )
    plain.__kwdefaults__ = compiled.__kwdefaults__
    return plain
