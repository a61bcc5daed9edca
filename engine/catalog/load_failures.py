"""Problems reported for models whose files or code cannot be loaded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenroom.engine.resources.device_errors import chain
from greenroom.schemas.problems import Problem, ProblemError, load_failed

OWN_CODE = (
    "it brings Python code of its own. If you trust its makers, start Greenroom with --trust-remote-code."
)

_ASKS_FOR_TRUST = "trust_remote_code=True"
"""Text in the errors that libraries raise for a model with Python code of its own."""

_MAX_REASON_LENGTH = 300

_FAULTS_OF_FILES = (ValueError, LookupError, TypeError, AttributeError, FileNotFoundError)
"""Exceptions by which libraries report missing or broken files. Others, such as RuntimeError and OSError, may
come from the device or the moment."""


@contextmanager
def named_failures(
    folder: Path, model: str = "", part: str = "", passing: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Convert any exception of foreign code within, even `exit()` and Rust panics, into a problem.

    Args:
        model: Name of the model in errors; by default the folder's name.
        part: Part of the model created within, as in "its tokenizer".
        passing: Exception types to re-raise unchanged.

    Raises:
        ProblemError: The same error if raised within; 501 if a Python package is missing; else 503
            `load_failed`.
    """
    as_they_are: tuple[type[BaseException], ...] = (ProblemError, KeyboardInterrupt, *passing)
    try:
        yield
    except as_they_are:
        raise
    except BaseException as error:
        if module := missing_module(error):
            raise ProblemError(library_missing(model or folder.name, module)) from error
        reason = failure_reason(error, folder)
        detail = f"{part} is unusable: {reason}" if part else reason
        lasting = isinstance(error, _FAULTS_OF_FILES)
        raise ProblemError(load_failed(model or folder.name, detail, lasting=lasting)) from error


def failure_reason(error: BaseException, folder: Path | None = None) -> str:
    """Return a one-line reason for the client, without the server's paths.

    Args:
        error: Exception of the library or the model's own code; SystemExit if it calls `exit()`.
        folder: Folder of the model; None if no file of it is concerned.
    """
    if isinstance(error, SystemExit):
        text = (
            f"its code ended the program: exit({error.code!r})."
            if error.code
            else "its code ended the program."
        )
    else:
        said = str(error).strip()
        text = (said if folder is None else said.replace(str(folder), folder.name)) or type(error).__name__
    line = OWN_CODE if _ASKS_FOR_TRUST in text else " ".join(text.split())
    return line if len(line) <= _MAX_REASON_LENGTH else line[: _MAX_REASON_LENGTH - 1] + "…"


ADAPTER_CONFIG = "adapter_config.json"
READ_ADAPTERS = ("adapters.safetensors", "adapter_model.safetensors")
ADAPTERS = (*READ_ADAPTERS, "adapter_model.bin", "adapters.npz")
"""Weights of adapters (LoRA), as mlx-lm and PEFT write them."""

_FORMATS = {
    ".gguf": "GGUF",
    ".npz": "NumPy arrays",
    ".bin": "PyTorch's weights",
    ".pt": "PyTorch's weights",
    ".pth": "PyTorch's weights",
    ".onnx": "ONNX",
    ".h5": "TensorFlow's weights",
    ".msgpack": "Flax's weights",
}
_NO_WEIGHTS = frozenset(
    {"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"}
)
"""Files that training leaves behind."""

_MOST_ENTRIES = 5_000
_LONGEST_NAME = 80


def why_no_model(folder: Path) -> str:
    """Return the reason why a folder without a config.json is no model, as a clause without a full stop."""
    names = _names(folder)
    if not names and folder.is_dir():
        return "its folder is empty: there is no config.json"
    if "model_index.json" in names:
        return "it is a pipeline of diffusers (model_index.json), which is not served here"
    return f"there is no config.json in its folder{other_weights(folder)}"


def other_weights(folder: Path) -> str:
    """Return a clause about weights in unsupported formats (`; it holds …`); empty if there are none."""
    names = _names(folder)
    if (adapter := find_adapter(folder)) is not None:
        return f"; it holds an adapter ({adapter}), which needs the model that it was trained for"
    for name in names:
        kind = _FORMATS.get(Path(name).suffix.lower())
        if kind is not None and name not in _NO_WEIGHTS:
            return f"; it holds {kind} ({_shown(name)}), which Greenroom does not read"
    return ""


def find_adapter(folder: Path) -> str | None:
    """Return the name of a folder's adapter weight file (LoRA); None if there is none."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return None
    return next((name for name in ADAPTERS if (folder / name).is_file()), None)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MOST_ENTRIES)]
    except OSError:
        return []
    return sorted(name for name in names if not name.startswith("."))


def _shown(name: str) -> str:
    printable = "".join(each if each.isprintable() else "?" for each in name)
    return printable if len(printable) <= _LONGEST_NAME else printable[: _LONGEST_NAME - 1] + "…"


# Detection of a Python package that a model's code lacks, with instructions to install it.
#
# Packages that few models need are not installed with Greenroom (`[tool.uv]` in pyproject.toml).

_PACKAGES = {"cv2": "opencv-python", "hf_olmo": "ai2-olmo", "phonemizer": "phonemizer-fork"}
"""Packages whose names differ from those of their modules."""

_LIBRARIES = ("mlx_lm.", "mlx_vlm.", "mlx_audio.")
"""Prefixes of modules whose absence means an unknown architecture, which the library reports itself."""


def missing_module(error: BaseException) -> str:
    names = (cause.name or "" for cause in chain(error) if isinstance(cause, ModuleNotFoundError))
    return next((name for name in names if name and not name.startswith(_LIBRARIES)), "")


def library_missing(model: str, module: str, install: str = "") -> Problem:
    """Return the 501 problem for a missing library. `install`: command that installs it; by default `pip
    install` of its package.
    """
    top = module.partition(".")[0]
    line = install or f"pip install {_PACKAGES.get(top, top.replace('_', '-'))}"
    detail = f"'{model}' needs the Python package {top}, which is not installed. Install it with: {line}"
    return Problem(501, "library_missing", detail, "model")
