"""Find which Python package a model's code lacks, and say how it is installed.

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
"""Packages that are called otherwise than the modules they bring."""

_LIBRARIES = ("mlx_lm.", "mlx_vlm.", "mlx_audio.")
"""Modules that are missing where a library does not know an architecture, which it says itself."""


def missing_module(error: BaseException) -> str:
    """Return the module that an error, or what led to it, could not import; an empty text if none."""
    names = (cause.name or "" for cause in _chain(error) if isinstance(cause, ModuleNotFoundError))
    return next((name for name in names if name and not name.startswith(_LIBRARIES)), "")


def library_missing(model: str, module: str, install: str = "") -> Problem:
    """Return the 501 of a model whose library is not installed.

    Args:
        model: What it is called.
        module: What cannot be imported.
        install: The line that installs it; by default that of the package of that name.
    """
    top = module.partition(".")[0]
    line = install or f"pip install {_PACKAGES.get(top, top.replace('_', '-'))}"
    detail = f"'{model}' needs the Python package {top}, which is not installed. Install it with: {line}"
    return Problem(501, "library_missing", detail, "model")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
