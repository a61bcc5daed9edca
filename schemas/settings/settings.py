"""All settings of an operator, with type, range, default and meaning.

`greenroom.http.settings.sources` reads them from a TOML file, `GREENROOM_*` variables and command-line flags,
and takes the help texts from here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, Literal

import attrs

from greenroom.schemas.settings.remotes import Remotes
from greenroom.schemas.settings.setting_groups import (
    Audit,
    GenerationDefaults,
    Images,
    Logs,
    Memory,
    Network,
    Parallelism,
    ServedModels,
    Speculation,
    Speed,
    Storage,
    merge_tables,
    own,
    setting,
    setting_table,
)
from greenroom.schemas.settings.tool_servers import ToolServer, ToolServers, merge_servers

# Settings of single models: the tables `[model."org/name"]` of the settings file.
#
# A field with the name of a server's setting replaces it for that model; the others exist for models alone.


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
    adapter: str | None = setting(
        None, "LoRA adapter of all requests to the model that name no other: its name, or its folder."
    )
    tool_parser: str | None = setting(
        None, "Parser of tool calls (default: the one that reads the model's own template)."
    )
    thinking_parser: str | None = setting(None, "Parser of reasoning, likewise.")
    chat_template: str | None = setting(
        None, "File with a chat template in Jinja (default: the model's own template)."
    )
    system_prompt: str | None = own(ServedModels, "system_prompt")
    ranks: int | None = setting(
        None, "Processes among which the model is divided; each holds its part (default: 1).", low=1
    )
    hosts: tuple[str, ...] | None = own(ServedModels, "hosts")
    parallelism: Parallelism | None = own(ServedModels, "parallelism")
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
    values = attrs.asdict(table, recurse=False)
    return {name: value for name, value in values.items() if value not in (None, ())}


@attrs.frozen
class Profile(GenerationDefaults):
    """A name under which a model is listed once more, with defaults for requests by that name."""

    model: str = setting("", "Name of the model, as it is listed.")
    adapter: str | None = setting(None, "LoRA adapter of requests by this name.")


ProfileTables = tuple[tuple[str, Profile], ...]
"""Pairs of a profile's name and its settings."""


Source = Literal["file", "environment", "flag"]

Aliases = tuple[tuple[str, str], ...]
"""Pairs of an additional name, or a pattern of names, and its model; the first match applies."""


@attrs.frozen(slots=False)
class SingleModels:
    """Settings of single models and their profiles."""

    model_settings: ModelTables = setting_table(
        ModelSettings,
        'Settings of single models, as tables `[model."org/name"]` or `NAME:SETTING=VALUE`; `*` in the name '
        "matches any text. A full name beats a pattern, the first of two patterns wins.",
    )
    profiles: ProfileTables = setting_table(
        Profile,
        'Further models that share the weights of one, as tables `[profiles."qwen3:code"]` or '
        "`NAME:SETTING=VALUE`, with its name and their own defaults of answers.",
    )


@attrs.frozen
class Settings(
    Logs,
    Audit,
    GenerationDefaults,
    Storage,
    ToolServers,
    Remotes,
    Images,
    Speed,
    Memory,
    Network,
    SingleModels,
    ServedModels,
):
    """The settings of a Greenroom server.

    Args:
        origins: Names of settings with the kind of source that set them; no setting itself.
    """

    origins: tuple[tuple[str, Source], ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)

    def of_model(self, model: str) -> ModelSettings:
        """Return the settings that are a model's own, by the name under which it is listed."""
        return settings_of(model, self.model_settings)

    def applied_to(self, model: str) -> Settings:
        """Return the server's settings with those that are a model's own in their place."""
        of_model = self.of_model(model)
        own: dict[str, Any] = {
            name: value for name in _OF_BOTH if (value := getattr(of_model, name)) is not None
        }
        return attrs.evolve(self, **own) if own else self

    @property
    def aliases(self) -> Aliases:
        """Further names of models, with the model that each means, in the order of the tables."""
        return tuple((alias, model) for model, table in self.model_settings for alias in table.alias)

    @property
    def all_profiles(self) -> dict[str, Profile]:
        """The profiles by name, each setting from the first table that has it."""
        return merge_tables(Profile, self.profiles)

    @property
    def tool_servers(self) -> dict[str, ToolServer]:
        """The MCP servers by name, each setting from the first table that has it."""
        return merge_servers(self.mcp)

    @property
    def models_of_profiles(self) -> dict[str, str]:
        """The names of models by name of profile."""
        return {name: profile.model for name, profile in self.all_profiles.items()}

    @property
    def draft_models(self) -> tuple[str, ...]:
        drafts = (self.draft_model, *(table.draft_model for _, table in self.model_settings))
        return tuple(dict.fromkeys(draft for draft in drafts if draft is not None))


_OF_BOTH = attrs.fields_dict(Settings).keys() & attrs.fields_dict(ModelSettings).keys()

# The groups have no slots: a class cannot inherit those of several classes.
GROUPS: dict[str, tuple[type, ...]] = {
    "Models": (ServedModels, SingleModels),
    "Network": (Network,),
    "Memory and caches": (Memory,),
    "Speed": (Speed,),
    "Images": (Images,),
    "Tools": (ToolServers,),
    "Models elsewhere": (Remotes,),
    "Storage": (Storage,),
    "Audit": (Audit,),
    "Defaults of answers": (GenerationDefaults,),
    "Logs": (Logs,),
}
"""The settings by topic."""


Origin = Literal["default", "file", "environment", "flag", "model", "profile"]
"""Source of a value; `model` is the model's own table, `profile` that of a profile."""


@attrs.frozen
class SettingInForce:
    """A setting's value for one model, with its origin."""

    name: str
    value: Any
    origin: Origin


def settings_in_force(
    settings: Settings, model: str, profile: str | None = None
) -> tuple[SettingInForce, ...]:
    """Return the settings that can be a model's own, as they hold for it."""
    own, applied = given_values(settings.of_model(model)), settings.applied_to(model)
    table = settings.all_profiles.get(profile) if profile is not None else None
    of_profile = {} if table is None else given_values(table)
    sources: dict[str, Origin] = {**dict(settings.origins)}
    found: list[SettingInForce] = []
    for field in attrs.fields(ModelSettings):
        name = field.name
        if name in of_profile:
            found.append(SettingInForce(name, of_profile[name], "profile"))
        elif name in own:
            found.append(SettingInForce(name, own[name], "model"))
        else:
            origin = sources.get(name, "default")
            found.append(SettingInForce(name, getattr(applied, name, field.default), origin))
    return tuple(found)


RELOADABLE = (
    "models",
    "model_dir",
    "default",
    "model_settings",
    "profiles",
    "allowed_hosts",
    "allowed_origins",
    "log_level",
)
"""Settings that a running server takes in."""


@attrs.frozen
class SettingsChange:
    """The difference between the current settings and those that were read again.

    Args:
        settings: Settings to apply: those that need a new process stay as they are.
        applied: Names of the changed settings that a running server applies.
    """

    settings: Settings
    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]


def compare(before: Settings, read: Settings) -> SettingsChange:
    """Return the difference between the current settings and those that were read again."""
    names = sorted(attrs.fields_dict(Settings).keys() - {"origins"})
    changed = [name for name in names if getattr(before, name) != getattr(read, name)]
    applied = tuple(name for name in changed if name in RELOADABLE)
    taken = {name: getattr(read, name) for name in applied}
    origins = {**dict(before.origins)}
    for name in applied:
        origins.pop(name, None)
    origins |= {name: source for name, source in read.origins if name in applied}
    settings = attrs.evolve(before, **taken, origins=tuple(origins.items()))
    return SettingsChange(settings, applied, tuple(name for name in changed if name not in RELOADABLE))


def opens_otherwise(before: Settings, now: Settings, model: str) -> bool:
    """Return whether a model's files must be read again to apply its changed settings.

    Names and residence in memory are not part of an opened model.
    """
    old, new = (
        attrs.evolve(settings.of_model(model), alias=(), pinned=None, preload=None, ttl=None, adapter=None)
        for settings in (before, now)
    )
    return old != new


def is_pattern(name: str) -> bool:
    """Return whether a name in the settings stands for any number of models."""
    return "*" in name


@functools.lru_cache(maxsize=512)
def name_pattern(name: str) -> re.Pattern[str]:
    """Return a regular expression that must match a whole model name."""
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", name).split("*"))), re.DOTALL)
