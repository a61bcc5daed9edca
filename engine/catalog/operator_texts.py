"""Text files that the operator's settings name: system prompts and chat templates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs

from greenroom.engine.catalog.model_files import MAX_TEMPLATE_BYTES
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError, load_failed, memory_members
from greenroom.schemas.settings.settings import Settings

MAX_BYTES = 1_000_000  # Size limit of a system prompt in bytes; more than the context of most models


def system_prompt_of(model: str, settings: Settings) -> str:
    """Return a model's system prompt: its own, else the common one; empty if there is none. Raises
    ProblemError: 503 if its file cannot be read.
    """
    return _text_of(model, settings.applied_to(model).system_prompt, "system prompt", MAX_BYTES) or ""


def chat_template_of(model: str, settings: Settings) -> str | None:
    """Return the chat template that the operator chose for a model; None for the model's own. Raises
    ProblemError: 503 if its file cannot be read.
    """
    return _text_of(model, settings.of_model(model).chat_template, "chat template", MAX_TEMPLATE_BYTES)


def find_bad_file(settings: Settings) -> str | None:
    """Return a description of the first unusable file's fault; None if all files are usable."""
    for setting, file, limit in _files(settings):
        try:
            read_text(file, limit)
        except ValueError as error:
            return f"{setting}: the file {error}"
    return None


def read_text(file: str, limit: int = MAX_BYTES) -> str:
    """Return the text of a file, without trailing white space. `limit`: size limit in bytes. Raises
    ValueError: the file cannot be read, is too long, or is not UTF-8; the message says which.
    """
    try:
        with Path(file).expanduser().open("rb") as opened:
            text = opened.read(limit + 1)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"'{file}' cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if len(text) > limit:
        raise ValueError(f"'{file}' is longer than {limit:,} bytes")
    try:
        return text.decode("utf-8-sig").rstrip()
    except UnicodeDecodeError as error:
        raise ValueError(f"'{file}' is no text in UTF-8") from error


def _text_of(model: str, file: str | None, purpose: str, limit: int) -> str | None:
    if not file:
        return None
    try:
        return read_text(file, limit)
    except ValueError as error:
        raise ProblemError(load_failed(model, f"its {purpose} {error}")) from error


def _files(settings: Settings) -> Iterable[tuple[str, str, int]]:
    """Yield the setting, the path and the size limit of each file."""
    if settings.system_prompt:
        yield "system_prompt", settings.system_prompt, MAX_BYTES
    for name, table in settings.model_settings:
        if table.system_prompt:
            yield f'model."{name}".system_prompt', table.system_prompt, MAX_BYTES
        if table.chat_template:
            yield f'model."{name}".chat_template', table.chat_template, MAX_TEMPLATE_BYTES


def with_operators_parsers(record: CapabilityRecord, settings: Settings, model: str) -> CapabilityRecord:
    """Return a model's record with the parsers that the operator configured for it, if any."""
    own = settings.of_model(model)
    return attrs.evolve(
        record,
        tool_parser=own.tool_parser or record.tool_parser,
        reasoning_parser=own.thinking_parser or record.reasoning_parser,
    )


LARGEST_SHARE = 0.7
"""Largest share of physical memory for the weights of a vision model.

Source: document 002 of the specification, "Memory-Aware Loading".
"""


def allows_vision(model: str, settings: Settings) -> bool:
    return settings.of_model(model).vision is not False


def check_vision(
    record: CapabilityRecord, folder: Path, model: str, settings: Settings, physical: int
) -> None:
    """Refuse a vision model that is too large, or one that cannot be loaded with its vision turned off.

    Args:
        physical: Physical memory of this machine in bytes.

    Raises:
        ProblemError: 503 `load_failed`; or 507 with the bytes needed and available.
    """
    if record.model_type != "vision":
        return
    if not allows_vision(model, settings):
        detail = (
            f"vision is off for it, and mlx-lm cannot load the text half of '{record.architecture}' alone "
            "(setting vision)."
        )
        raise ProblemError(load_failed(model, detail))
    needed = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    available = int(physical * LARGEST_SHARE)
    if needed > available:
        detail = (
            f"The model '{model}' sees, and needs {needed >> 20:,} MB for its weights; such models may take "
            f"{available >> 20:,} MB here, {LARGEST_SHARE:.0%} of the memory, since images need much beside "
            "them. With vision off its text half alone is loaded (setting vision)."
        )
        members = memory_members(needed, available)
        raise ProblemError(Problem(507, "insufficient_memory", detail, members=members))
