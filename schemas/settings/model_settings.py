"""Settings of single models: the tables `[model."org/name"]` of the settings file.

A field with the name of a server's setting replaces it for that model; the others exist for models alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from greenroom.schemas.settings.generation_defaults import GenerationDefaults
from greenroom.schemas.settings.images import Images
from greenroom.schemas.settings.memory import Memory
from greenroom.schemas.settings.name_patterns import is_pattern, name_pattern
from greenroom.schemas.settings.served_models import ServedModels
from greenroom.schemas.settings.setting_fields import own, setting
from greenroom.schemas.settings.speed import Speculation, Speed


@attrs.frozen
class ModelSettings(GenerationDefaults):
    """Settings of one model, or of the models whose names match a pattern. None leaves a setting as it is."""

    alias: tuple[str, ...] = setting(
        (), "Further names of the model; `*` in a name matches any text. Only under a model's full name."
    )
    pinned: bool | None = setting(None, "Never unload the model to make room (default: `false`).")
    preload: bool | None = setting(None, "Load the model when the server starts (default: `false`).")
    ttl: float | None = setting(
        None, "Seconds without a request after which the model is unloaded (default: never).", above=0
    )
    max_context: int | None = own(
        ServedModels, "max_context", "Longest context, in tokens (default: the model's own)."
    )
    kv_bits: int | None = own(Memory, "kv_bits")
    speculation: Speculation | None = own(Speed, "speculation")
    draft_model: str | None = own(Speed, "draft_model")
    tool_parser: str | None = setting(
        None, "Parser of tool calls (default: the one that reads the model's own template)."
    )
    thinking_parser: str | None = setting(None, "Parser of reasoning, likewise.")
    chat_template: str | None = setting(
        None, "File with a chat template in Jinja (default: the model's own template)."
    )
    system_prompt: str | None = own(ServedModels, "system_prompt")
    vision: bool | None = setting(
        None, "Let the model see; when off, its text half is loaded alone (default: `true`)."
    )
    images_greedy: bool | None = own(Images, "images_greedy")
    images_max_count: int | None = own(Images, "images_max_count")
    images_max_pages: int | None = own(Images, "images_max_pages")


ModelTables = tuple[tuple[str, ModelSettings], ...]
"""Pairs of a model's name, or a pattern of names, and its settings."""


def settings_of(model: str, tables: ModelTables) -> ModelSettings:
    """Return the settings of one model, each from the first table that sets it.

    Tables with the model's full name precede patterns; of two patterns the first does.

    Args:
        model: Name of the model, as it is listed.
        tables: Tables in order.
    """
    values: dict[str, object] = {}
    for _, table in reversed([*tables_of(model, tables)]):
        values |= given_values(table)
    return ModelSettings(**values)  # type: ignore[arg-type]


def tables_of(model: str, tables: ModelTables) -> Iterable[tuple[str, ModelSettings]]:
    """Return the tables that apply to a model, with their names; those that win first."""
    yield from (pair for pair in tables if pair[0] == model)
    patterns = (pair for pair in tables if is_pattern(pair[0]) and pair[0] != model)
    yield from (pair for pair in patterns if name_pattern(pair[0]).fullmatch(model))


def given_values(table: GenerationDefaults) -> dict[str, object]:
    """Return the values that a table sets, by name."""
    values = attrs.asdict(table, recurse=False)
    return {name: value for name, value in values.items() if value not in (None, ())}
