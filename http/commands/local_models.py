"""What commands ask of the engine: they are given it, since only `command_line` may import the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import click

from greenroom.http.commands.option_types import MODEL
from greenroom.schemas.download import Download
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.settings.settings import Settings


class LocalModels(Protocol):
    """The models and devices of this machine."""

    def has_gpu(self) -> bool:
        """Return whether MLX can compute on a GPU here."""

    def can_compute(self) -> bool:
        """Return whether MLX was installed with what it computes with."""

    def is_missing(self, model: str) -> bool:
        """Return whether an operator's name for a model means a folder that is not there."""

    def why_no_model(self, model: str) -> str | None:
        """Return what is wrong where an operator's name for a model means a folder that holds none."""

    def find_missing(self, models: Sequence[str]) -> list[str]:
        """Return those of an operator's names that are hub ids of models that are not on this machine."""

    def fetch(
        self, hub_id: str, settings: Settings, tell: Callable[[Download], None], *, progress: bool
    ) -> None:
        """Download a model; `tell` what is about to be, before anything large is.

        Raises:
            ProblemError: It cannot be downloaded.
        """

    def cached_ids(self) -> list[str]:
        """Return the hub ids of the models in the hub's cache, complete or not."""

    def find_kind(self, settings: Settings) -> ModelType | None:
        """Return the kind of the first model, if its files are here and can be used."""

    def find_unknown(self, settings: Settings, names: Collection[str]) -> set[str]:
        """Return those of the names that no model has which a server with these settings would serve now."""

    def find_bad_system_prompt(self, settings: Settings) -> str | None:
        """Return what is wrong with a file that holds a system prompt, if one cannot be used."""

    def describe(self, models: tuple[str, ...], trust_remote_code: bool) -> list[dict[str, Any]]:
        """Return what is known of the models that can be asked for, without loading any."""


model_option = click.option(
    "-m", "--model", type=MODEL, help="Local folder or hub id; by default the first of the settings file."
)
"""Of commands whose argument is what the model is to work on."""
