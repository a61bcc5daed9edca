"""The architectures that mlx-audio can speak with, and the libraries that some of them need."""

from __future__ import annotations

from types import ModuleType

from greenroom.engine.loading.libraries import import_model_code
from greenroom.schemas.problems import Problem, ProblemError, load_failed

_LIBRARY = "mlx_audio"
_PACKAGES = {"espeakng_loader": "espeakng-loader", "phonemizer": "phonemizer-fork"}
"""Packages that are called otherwise than their modules."""


def library_name(architecture: str) -> str:
    """Return what the library calls an architecture: some have several names."""
    remapping: dict[str, str] = import_model_code("mlx_audio.tts.utils").MODEL_REMAPPING
    return remapping.get(architecture, architecture.replace("-", "_"))


def import_architecture(architecture: str, model: str) -> tuple[str, ModuleType]:
    """Return the library's name of an architecture, and its code.

    Args:
        model: For errors.

    Raises:
        ProblemError: 501: a library that it needs is missing; 503: it is not known.
    """
    try:
        name = library_name(architecture)
        return name, import_model_code(f"{_LIBRARY}.tts.models.{name}")
    except ImportError as error:
        absent = (error.name or "").partition(".")[0]
        if absent and absent != _LIBRARY:
            raise ProblemError(library_missing(model, absent)) from error
        detail = f"its architecture '{architecture}' is not known to the installed mlx-audio."
        raise ProblemError(load_failed(model, detail)) from error


def library_missing(model: str, module: str, install: str = "") -> Problem:
    """Return the 501 of a model whose library is not installed.

    Args:
        module: What cannot be imported.
        install: The line that installs it; by default that of the package of that name.
    """
    line = install or f"pip install {_PACKAGES.get(module, module)}"
    detail = f"'{model}' needs the Python package {module}, which is not installed. Install it with: {line}"
    return Problem(501, "library_missing", detail, "model")
