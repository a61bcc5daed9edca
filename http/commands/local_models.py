"""Interface of commands to the engine, injected because only `command_line` may import the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import click

from greenroom.http.terminal.option_types import MODEL
from greenroom.schemas.download import Download
from greenroom.schemas.machine_report import MachineReport
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.schemas.settings.settings import Settings


class LocalModels(Protocol):
    """The models and devices of this machine."""

    def has_gpu(self) -> bool:
        """Return whether MLX finds a GPU."""

    def can_compute(self) -> bool:
        """Return whether MLX is installed with a backend."""

    def is_missing(self, model: str) -> bool:
        """Return whether an operator's name for a model is a path to a folder that does not exist."""

    def why_no_model(self, model: str) -> str | None:
        """Return an error message if an operator's name for a model is a path to a folder without a model."""

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

    def find_unknown(self, settings: Settings, names: Collection[str]) -> set[str]:
        """Return the names that match no model of a server with these settings."""

    def why_pins_do_not_fit(self, settings: Settings) -> str | None:
        """Return an error message if the pinned models exceed the memory together."""

    def find_bad_file(self, settings: Settings) -> str | None:
        """Return an error message about an unusable file of the settings, if there is one."""

    def find_conflict(self, settings: Settings) -> str | None:
        """Return a sentence about two things of one name, if there are any."""

    def describe(self, settings: Settings, name: str | None = None) -> list[dict[str, Any]]:
        """Return descriptions of the available models, or of one, without loading any.

        Args:
            name: Name of a model as in requests; an unknown one has no description.
        """


model_option = click.option(
    "-m", "--model", type=MODEL, help="Local folder or hub id; by default the first of the settings file."
)
"""Option of commands whose argument is the model's input."""
