"""Architectures that the installed libraries support, read from their source, since imports take seconds."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.model_files import open_regular

MODULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
"""Pattern of valid architecture names, since they become part of a path."""

_IMPORTED = re.compile(r"^from +\S+ +import +(\([^)]*\)|[^\n(]+)", re.MULTILINE)
_DEFINED = re.compile(r"^(?:class +(\w+)|(\w+) *=)", re.MULTILINE)

_parsing = threading.Lock()
"""Lock for parsing, since CPython 3.11 cannot parse on two threads at once.

The error is `AST constructor recursion depth mismatch`.
"""


@functools.cache
def library_folder(name: str) -> Path | None:
    """Return the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


@functools.cache
def library_constant(library: str, file: str, name: str) -> Any:
    """Return a dictionary or set literal from a library's source; an empty dictionary if it is missing.

    Values that are not literals are returned as source text.
    """
    root = library_folder(library)
    if root is None or not (root / file).is_file():
        return {}
    with _parsing:
        for statement in ast.parse((root / file).read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
                return _value(statement.value)
    return {}


@functools.cache
def models_of(library: str, folder: str = "models") -> frozenset[str]:
    """Return the names of a library's packages and files that implement a model."""
    root = library_folder(library)
    if root is None or not (root / folder).is_dir():
        return frozenset()
    packages = {path.parent.name: path for path in (root / folder).glob("*/__init__.py")}
    files = {path.stem: path for path in (root / folder).glob("*.py")}
    return frozenset(name for name, path in (packages | files).items() if _offers_model(path))


@functools.cache
def text_module(architecture: str) -> Path | None:
    """Return the file of mlx-lm that implements an architecture, if there is one."""
    root = library_folder("mlx_lm")
    if root is None or not MODULE_NAME.fullmatch(architecture):
        return None
    remapping: Mapping[str, str] = library_constant("mlx_lm", "utils.py", "MODEL_REMAPPING")
    path = root / "models" / f"{remapping.get(architecture, architecture)}.py"
    if not path.is_file():
        return None
    return path if _offers_model(path) else None


def exports_of(library: str, model: str) -> frozenset[str]:
    """Return the names exported by a model's package in a library; none if there is no such package."""
    root = library_folder(library)
    path = None if root is None else root / "models" / model / "__init__.py"
    return _names_in(path) if path is not None and path.is_file() else frozenset()


def _offers_model(path: Path) -> bool:
    return "Model" in _names_in(path)


@functools.cache
def _names_in(path: Path) -> frozenset[str]:
    source = path.read_text(encoding="utf-8")
    names = {name for pair in _DEFINED.findall(source) for name in pair if name}
    for imported in _IMPORTED.findall(source):
        # In `Name as Other`, the file exports the latter.
        names.update(piece.split()[-1] for piece in _without_comments(imported).split(",") if piece.split())
    return frozenset(names)


def _without_comments(imported: str) -> str:
    return re.sub(r"#[^\n]*", "", imported).strip("()")


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {ast.literal_eval(key): _value(value) for key, value in pairs if key is not None}
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


# Detection of language models that speak: they have a chat model's configuration, but tokens for audio.
#
# mlx-audio takes the architecture from its caller or from the folder's name; a server must detect it.

_BACKBONES = frozenset({"llama", "qwen2", "qwen3"})

_OWN = ""
"""Marker for the folder of mlx-audio with the backbone's own name (Orpheus is `llama`, VyvoTTS `qwen3`)."""

_TOKENS: Mapping[str, tuple[bytes, ...]] = {
    _OWN: (b'"<custom_token_0>"', b'"<custom_token_4095>"'),
    "outetts": (b'"<|global_features_start|>"', b'"<|voice_characteristic_start|>"'),
    "spark": (b'"<|bicodec_global_0|>"', b'"<|bicodec_semantic_0|>"'),
    "soprano": (b'"[START]"', b'"[STOP]"', b'"[TEXT]"'),
}
"""Tokens that identify an architecture, by mlx-audio's name for it; a model must have all of them."""

_NAMES: Mapping[str, str] = {"orpheus": _OWN, "outetts": "outetts", "soprano": "soprano", "spark": "spark"}
"""Architectures by a word of the model's name; the name must contain the word `tts` too."""

_HEAD = 2 << 20  # Bytes to read at the start of a tokenizer's file, which lists the added tokens first


def speaking_architecture(folder: Path, config: Mapping[str, Any], name: str) -> str | None:
    """Return mlx-audio's name for a language model that speaks; None for a model that writes."""
    backbone = config.get("model_type")
    if backbone not in _BACKBONES:
        return None
    found = _by_tokens(folder)
    if found is None:
        found = _by_name(name)
    return None if found is None else found or str(backbone)


def _by_tokens(folder: Path) -> str | None:
    for name in ("tokenizer_config.json", "tokenizer.json", "added_tokens.json"):
        try:
            with open_regular(folder / name) as file:
                head = file.read(_HEAD)
        except (OSError, ValueError):
            continue
        for library_name, tokens in _TOKENS.items():
            if all(token in head for token in tokens):
                return library_name
    return None


def _by_name(name: str) -> str | None:
    words = re.split(r"[^a-z0-9]+", name.lower().rstrip("/").rpartition("/")[2])
    if "tts" not in words and "outetts" not in words:
        return None
    return next((_NAMES[word] for word in words if word in _NAMES), None)
