"""Removal of `mx.compile` from functions of vision towers that contain attention."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import mlx.core as mx

_LIBRARY = "mlx_vlm.models."
_LANGUAGE = ".language"
"""Suffix of modules that are never split and stay compiled."""

_ATTENTION = "scaled_dot_product_attention"


def uncompile_attention() -> None:
    """Replace compiled attention functions of imported towers by the functions they were compiled from.

    A compiled function is traced once, on arrays that cannot be evaluated, and is not called again for the
    same shapes: attention inside it could not be computed in pieces. Compilation gains nothing there, since
    it only fuses elementwise operations. This runs once for all threads, before a tower is first called;
    MLX's own switch would disable compilation for all models of the process.
    """
    for module in [module for name, module in sys.modules.items() if _may_be_split(name)]:
        for name, function in attending_functions(module).items():
            setattr(module, name, _plain(function))


def attending_functions(module: ModuleType) -> dict[str, Any]:
    """Return a module's compiled functions that contain attention, by name."""
    compiled = type(mx.compile(lambda array: array))
    found = {name: value for name, value in vars(module).items() if isinstance(value, compiled)}
    return {name: value for name, value in found.items() if _attends(value.__code__)}


def _may_be_split(module: str) -> bool:
    return module.startswith(_LIBRARY) and not module.endswith(_LANGUAGE)


def _attends(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return _ATTENTION in code.co_names or any(map(_attends, inner))


def _plain(compiled: Any) -> Callable[..., Any]:
    """Return the function a compiled one was made from; MLX's object keeps all its attributes."""
    plain = FunctionType(
        compiled.__code__,
        compiled.__globals__,
        compiled.__name__,
        compiled.__defaults__,
        compiled.__closure__,
    )
    plain.__kwdefaults__ = compiled.__kwdefaults__
    return plain
