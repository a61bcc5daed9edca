"""What is said of a model whose files or code could not be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenroom.schemas.problems import ProblemError, load_failed

_PACKAGES = {"hf_olmo": "ai2-olmo"}
"""Packages that are called otherwise than the modules they bring."""

_OURS = ("mlx_lm.models.", "mlx_vlm.models.")
"""Modules that are missing where a library does not know an architecture, which it says itself."""

_MAX_REASON_LENGTH = 300


@contextmanager
def named_failures(
    folder: Path, model: str = "", part: str = "", passing: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Turn whatever foreign code raises within, `exit()` and Rust's panics too, into a problem with a reason.

    Args:
        folder: The model's.
        model: What it is called in errors; by default as its folder.
        part: What of it is made within, as in "its tokenizer".
        passing: What is raised as it is.

    Raises:
        ProblemError: As raised within; else 503 `load_failed`.
    """
    as_they_are: tuple[type[BaseException], ...] = (ProblemError, KeyboardInterrupt, *passing)
    try:
        yield
    except as_they_are:
        raise
    except BaseException as error:
        reason = failure_reason(error, folder)
        detail = f"{part} is unusable: {reason}" if part else reason
        raise ProblemError(load_failed(model or folder.name, detail)) from error


def failure_reason(error: BaseException, folder: Path) -> str:
    """Return one line for the client, without the server's paths.

    Args:
        error: Whatever the library or the model's own code raised: SystemExit if it calls `exit()`.
        folder: The model's.
    """
    if missing := next(filter(None, map(_missing_module, _chain(error))), ""):
        package = _PACKAGES.get(missing, missing.partition(".")[0])
        text = f"its code needs the Python package {package}, which is not installed (pip install {package})."
    elif isinstance(error, SystemExit):
        text = (
            f"its code ended the program: exit({error.code!r})."
            if error.code
            else "its code ended the program."
        )
    else:
        text = str(error).strip().replace(str(folder), folder.name) or type(error).__name__
    line = " ".join(text.split())
    return line if len(line) <= _MAX_REASON_LENGTH else line[: _MAX_REASON_LENGTH - 1] + "…"


def _missing_module(error: BaseException) -> str:
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    return "" if name.startswith(_OURS) else name


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
