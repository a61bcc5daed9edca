"""All settings of an operator, with type, range, default and meaning.

`greenroom.http.settings.sources` reads them from a TOML file, `GREENROOM_*` variables and command-line flags,
and takes the help texts from here.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.settings.audit import Audit
from greenroom.schemas.settings.generation_defaults import GenerationDefaults
from greenroom.schemas.settings.images import Images
from greenroom.schemas.settings.logs import Logs
from greenroom.schemas.settings.memory import Memory
from greenroom.schemas.settings.model_settings import ModelSettings, ModelTables, settings_of
from greenroom.schemas.settings.network import Network
from greenroom.schemas.settings.profiles import Profile, ProfileTables, merge_profiles
from greenroom.schemas.settings.served_models import ServedModels
from greenroom.schemas.settings.setting_fields import setting_table
from greenroom.schemas.settings.speed import Speed
from greenroom.schemas.settings.storage import Storage
from greenroom.schemas.settings.tool_servers import ToolServer, ToolServers, merge_servers

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
        return merge_profiles(self.profiles)

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
    "Storage": (Storage,),
    "Audit": (Audit,),
    "Defaults of answers": (GenerationDefaults,),
    "Logs": (Logs,),
}
"""The settings by topic."""
