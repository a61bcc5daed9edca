"""Operator-defined system prompts for conversations without one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from greenroom.engine.catalog.operator.name_patterns import first_match
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings.settings import Settings

MAX_BYTES = 1_000_000
"""Size limit of a file in bytes; more than the context of most models."""


def system_prompt_of(model: str, settings: Settings) -> str:
    """Return a model's system prompt: its own, else the common one; empty if there is none.

    Args:
        model: Name of the model.

    Raises:
        ProblemError: 503 if its file cannot be read.
    """
    file = first_match(model, settings.system_prompts) or settings.system_prompt
    if not file:
        return ""
    try:
        return read_system_prompt(file)
    except ValueError as error:
        raise ProblemError(load_failed(model, f"its system prompt {error}")) from error


def find_bad_system_prompt(settings: Settings) -> str | None:
    """Return a description of the first unusable file's fault; None if all files are usable."""
    for setting, file in _files(settings):
        try:
            read_system_prompt(file)
        except ValueError as error:
            return f"{setting}: the file {error}"
    return None


def read_system_prompt(file: str) -> str:
    """Return the text of a file, without trailing white space.

    Raises:
        ValueError: The file cannot be read, is too long, or is not UTF-8; the message says which.
    """
    try:
        with Path(file).expanduser().open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"'{file}' cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if len(text) > MAX_BYTES:
        raise ValueError(f"'{file}' is longer than {MAX_BYTES:,} bytes")
    try:
        return text.decode("utf-8-sig").rstrip()
    except UnicodeDecodeError as error:
        raise ValueError(f"'{file}' is no text in UTF-8") from error


def _files(settings: Settings) -> Iterable[tuple[str, str]]:
    if settings.system_prompt:
        yield "system_prompt", settings.system_prompt
    for _, file in settings.system_prompts:
        yield "system_prompts", file
