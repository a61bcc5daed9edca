"""The architectures that mlx-audio can speak with, and the libraries that some of them need."""

from __future__ import annotations

from types import ModuleType

from greenroom.engine.catalog.files.missing_packages import library_missing, missing_module
from greenroom.engine.loading.libraries import import_model_code
from greenroom.schemas.problems import ProblemError, load_failed

_LIBRARY = "mlx_audio"


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
        if absent := missing_module(error):
            raise ProblemError(library_missing(model, absent)) from error
        detail = f"its architecture '{architecture}' is not known to the installed mlx-audio."
        raise ProblemError(load_failed(model, detail)) from error
