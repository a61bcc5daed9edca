"""The speech architectures of mlx-audio, and libraries that some of them need."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import ModuleType

from greenroom.engine.catalog.files.missing_packages import library_missing, missing_module
from greenroom.engine.loading.libraries import import_model_code
from greenroom.schemas.problems import ProblemError, load_failed

_LIBRARY = "mlx_audio"

_PACKAGES: Mapping[str, tuple[str, str]] = {
    "kitten_tts": ("phonemizer", "pip install phonemizer-fork"),
    "melotts": ("g2p_en", "pip install g2p_en"),
    "voxtral_tts": ("mistral_common", 'pip install "mistral-common[audio]"'),
}
"""Modules that the library imports only with the first text, with the command that installs them."""


def library_name(architecture: str) -> str:
    """Return mlx-audio's name of an architecture; some have several names."""
    remapping: dict[str, str] = import_model_code("mlx_audio.tts.utils").MODEL_REMAPPING
    return remapping.get(architecture, architecture.replace("-", "_"))


def import_architecture(architecture: str, model: str) -> tuple[str, ModuleType]:
    """Return mlx-audio's name of an architecture and its module.

    Args:
        model: The model's name, for errors.

    Raises:
        ProblemError: 501: a required library is missing; 503: the architecture is not supported.
    """
    try:
        name = library_name(architecture)
        module = import_model_code(f"{_LIBRARY}.tts.models.{name}")
    except ImportError as error:
        if absent := missing_module(error):
            raise ProblemError(library_missing(model, absent)) from error
        detail = f"its architecture '{architecture}' is not known to the installed mlx-audio."
        raise ProblemError(load_failed(model, detail)) from error
    if name in _PACKAGES and importlib.util.find_spec(_PACKAGES[name][0]) is None:
        raise ProblemError(library_missing(model, *_PACKAGES[name]))
    return name, module
