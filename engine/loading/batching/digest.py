"""Digest of the code that computes a model, since a batch-invariance check is valid for that code only."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

_MODELS = "mlx_lm.models"
_ALWAYS = ("base", "cache")
"""Files that every model uses, whether it imports them or not."""

_IMPORT = re.compile(rf"^\s*from (?:{re.escape(_MODELS)})?\.?(\w*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_FOR_A_DEVICE = re.compile(r"metal_kernel|cuda_kernel|default_device|is_available|\.kernels\b")
"""Pattern of code that runs on some devices only; `mlx_lm.kernels` are Metal kernels."""

_PATCHES = "batching_patches*"
_LOADING = Path(__file__).parents[1]


def code_digest(model: Any) -> str | None:
    """Return the digest of a model's code and our patches, 32 hexadecimal digits; None for unknown code.

    Args:
        model: Model, of which the architecture's file and its imports from mlx-lm's models are hashed. A
            model of another library supplies its own `code_digest`.
    """
    package, _, name = type(model).__module__.rpartition(".")
    digest: str | None = getattr(model, "code_digest", None)
    return digest_of(name) if package == _MODELS else digest


@cache
def digest_of(name: str) -> str:
    """Return the digest of an architecture, given the name of its file in mlx-lm's models."""
    return digest_of_files([*sources_of(name), *_patches()])


def branches_by_device(model: Any) -> bool:
    """Return whether some of the code that `code_digest` covers depends on the device.

    Args:
        model: Model of an architecture in mlx-lm's models.
    """
    return _any_branches(type(model).__module__.rpartition(".")[2])


@cache
def _any_branches(name: str) -> bool:
    sources = [*sources_of(name), *_patches()]
    return any(_FOR_A_DEVICE.search(path.read_text(encoding="utf-8")) for path in sources)


def patches_digest() -> str:
    return digest_of_files(_patches())


@cache
def digest_of_module(module: str) -> str:
    source = sys.modules[module].__file__
    return digest_of_files([Path(source)]) if source else ""


def sources_of(name: str) -> list[Path]:
    """Return the file of an architecture and those it imports, recursively."""
    folder = Path(importlib.import_module(_MODELS).__path__[0])
    found: set[str] = set()
    pending = {name, *_ALWAYS}
    while pending:
        found |= pending
        texts = [(folder / f"{stem}.py").read_text(encoding="utf-8") for stem in pending]
        pending = {stem for text in texts for stem in _imported(text) if (folder / f"{stem}.py").exists()}
        pending -= found
    return [folder / f"{stem}.py" for stem in sorted(found)]


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return the digest of files' names and contents, in order, 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _patches() -> list[Path]:
    found = [path for pattern in (f"{_PATCHES}.py", f"{_PATCHES}/*.py") for path in _LOADING.glob(pattern)]
    return sorted(found)


def _imported(text: str) -> set[str]:
    """Return the names that some code imports and that may be files of mlx-lm's models."""
    names: set[str] = set()
    for module, members in _IMPORT.findall(text):
        names |= {module} if module else set(re.findall(r"\w+", members))
    return names
