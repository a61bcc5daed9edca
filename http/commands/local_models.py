"""Interface of commands to the engine, injected because only `command_line` may import the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import click

from greenroom.http.settings.sources import KnownModels
from greenroom.http.terminal.streams import MODEL
from greenroom.schemas.models.model_description import Download, MachineReport
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.schemas.settings.settings import Settings


class LocalModels(KnownModels, Protocol):
    def find_missing(self, models: Sequence[str]) -> list[str]:
        """Return the hub ids among an operator's names whose models are not on this machine."""

    def fetch(
        self,
        name: str,
        settings: Settings,
        tell: Callable[[Download], None],
        report: Callable[[DownloadProgress], None],
    ) -> str:
        """Download a model, and return its folder; call `tell` before the download of anything large.

        Args:
            name: `OWNER/NAME` or `OWNER/NAME@REVISION`.
            report: Callback for the progress, a few times each second.

        Raises:
            ProblemError: It cannot be downloaded.
        """

    def survey_hub(self, hub_ids: Sequence[str]) -> tuple[dict[str, int], float]:
        """Return the bytes of those models that the hub has, and its bytes per second; empty without it."""

    def examine_machine(self, device: str) -> MachineReport:
        """Compute something small on the device of the settings, and return what is found."""

    def cached_ids(self) -> list[str]:
        """Return the hub ids of the models in the hub's cache, complete or not."""

    def describe(self, settings: Settings, name: str | None = None) -> list[dict[str, Any]]:
        """Return descriptions of the available models, or of one, without loading any."""

    def check_hosts(
        self, named: Sequence[str], model: str | None, settings: Settings
    ) -> Iterator[tuple[str, str, bool]]:
        """Yield subject, sentence and fault of each finding about hosts. Raises ProblemError: there is no
        such model; ValueError: no hosts are named, or not such as the model needs.
        """


model_option = click.option(
    "-m", "--model", type=MODEL, help="Local folder or hub id; by default the first of the settings file."
)
"""Option of commands whose argument is the model's input."""
