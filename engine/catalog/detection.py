"""What a model is, from its files alone (document 000, section 10.1); nothing of MLX is imported.

The fallback for models that were never probed. Which architectures exist is read off the installed
libraries' folders: importing them takes seconds.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.context_length import declared_context_length
from greenroom.engine.catalog.families import family_of
from greenroom.engine.catalog.model_files import read_json_object
from greenroom.schemas.capabilities import CapabilityRecord, ModelType
from greenroom.schemas.problems import ProblemError, load_failed

_SENTENCE_FILES = ("config_sentence_transformers.json", "modules.json")
"""Only models that embed text have them, whatever their architecture."""

_MODULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_ENCODERS = re.compile(r".*(bert|e5|bge|nomic|siglip|clip|embedding|rerank)", re.IGNORECASE)


def detect(folder: Path, trust_remote_code: bool = False, name: str = "") -> CapabilityRecord:
    """Return the capability record of a model's folder.

    Args:
        trust_remote_code: Accept a model that brings Python code of its own.
        name: What the model is called in errors; the folder's name by default.

    Raises:
        ProblemError: 503 `load_failed` if the folder holds no usable model.
    """
    name = name or folder.name
    try:
        config = read_json_object(folder / "config.json")
        architecture = _architecture(config)
    except ValueError as error:
        raise ProblemError(load_failed(name, f"{error}.")) from error
    if not trust_remote_code:
        _refuse_remote_code(config, name)
    kind = _model_type(folder, config, architecture)
    if kind is None and not (trust_remote_code and config.get("model_file")):
        detail = f"its architecture '{architecture}' is not known to the installed mlx-lm."
        raise ProblemError(load_failed(name, detail))
    text_module = _text_module(str(_text_config(config).get("model_type", architecture)))
    context = declared_context_length(folder, config, text_module or _text_module(architecture))
    return CapabilityRecord(kind or "text", family_of(architecture), architecture, context)


def _architecture(config: Mapping[str, Any]) -> str:
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or not _MODULE_NAME.fullmatch(architecture):
        raise ValueError("config.json names no model_type")
    return architecture


def _refuse_remote_code(config: Mapping[str, Any], name: str) -> None:
    for field in ("model_file", "auto_map"):
        if config.get(field):
            detail = (
                f"its config.json names Python code to run (`{field}`). If you trust its makers, start "
                "Greenroom with --trust-remote-code."
            )
            raise ProblemError(load_failed(name, detail))


def _model_type(folder: Path, config: Mapping[str, Any], architecture: str) -> ModelType | None:
    """Return which library loads it. What mlx-lm can load is text, even if it could see as well."""
    if any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or ()):
        return "rerank"
    if any((folder / file).exists() for file in _SENTENCE_FILES):
        return "embeddings"
    if _text_module(architecture) is not None:
        return "text"
    module = architecture.replace("-", "_")
    if _library_has("mlx_audio", f"tts/models/{module}"):
        return "speech"
    if _library_has("mlx_audio", f"stt/models/{module}"):
        return "transcription"
    if _library_has("mlx_embeddings", f"models/{module}.py") or _ENCODERS.fullmatch(architecture):
        return "embeddings"
    if "vision_config" in config or _library_has("mlx_vlm", f"models/{module}"):
        return "vision"
    return None


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _library_folder(name: str) -> Path | None:
    """Return where a package is installed, without importing it."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def _library_has(library: str, path: str) -> bool:
    root = _library_folder(library)
    return root is not None and (root / path).exists()


@functools.cache
def _model_remapping() -> Mapping[str, str]:
    """Return mlx-lm's table of architectures that share another's code."""
    root = _library_folder("mlx_lm")
    if root is None:
        return {}
    for statement in ast.parse((root / "utils.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "MODEL_REMAPPING":
            return dict(ast.literal_eval(statement.value))
    return {}


@functools.cache
def _text_module(architecture: str) -> Path | None:
    """Return the file of mlx-lm that implements an architecture, if there is one."""
    root = _library_folder("mlx_lm")
    if root is None or not _MODULE_NAME.fullmatch(architecture):
        return None
    path = root / "models" / f"{_model_remapping().get(architecture, architecture)}.py"
    if not path.is_file():
        return None
    source = path.read_text(encoding="utf-8")
    return path if re.search(r"^class Model\b|^from .* import .*\bModel\b", source, re.MULTILINE) else None
