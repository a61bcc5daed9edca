"""Detection of a Python package that a model's code lacks, with instructions to install it.

Packages that few models need are not installed with Greenroom (`[tool.uv]` in pyproject.toml).
"""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.schemas.problems import Problem

_PACKAGES = {
    "cv2": "opencv-python",
    "hf_olmo": "ai2-olmo",
    "phonemizer": "phonemizer-fork",
}
"""Packages whose names differ from those of their modules."""

_LIBRARIES = ("mlx_lm.", "mlx_vlm.", "mlx_audio.")
"""Prefixes of modules whose absence means an unknown architecture, which the library reports itself."""


def missing_module(error: BaseException) -> str:
    """Return the module whose import failed in an error or its causes; empty if there is none."""
    names = (cause.name or "" for cause in _chain(error) if isinstance(cause, ModuleNotFoundError))
    return next((name for name in names if name and not name.startswith(_LIBRARIES)), "")


def library_missing(model: str, module: str, install: str = "") -> Problem:
    """Return the 501 problem for a missing library.

    Args:
        model: Name of the model.
        module: Module that cannot be imported.
        install: Command that installs it; by default `pip install` of its package.
    """
    top = module.partition(".")[0]
    line = install or f"pip install {_PACKAGES.get(top, top.replace('_', '-'))}"
    detail = f"'{model}' needs the Python package {top}, which is not installed. Install it with: {line}"
    return Problem(501, "library_missing", detail, "model")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
