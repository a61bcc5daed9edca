"""Interface of the checks at the start to the engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from greenroom.schemas.settings.settings import Settings


class KnownModels(Protocol):
    """Questions about this machine's models and devices."""

    def has_gpu(self) -> bool:
        """Return whether MLX finds a GPU. This imports MLX, so it is called only if a GPU is required."""

    def can_compute(self) -> bool:
        """Return whether MLX is installed with a backend."""

    def is_missing(self, model: str) -> bool:
        """Return whether the name of a model is a path to a folder that does not exist."""

    def why_no_model(self, model: str) -> str | None:
        """Return an error message if the name of a model is a path to a folder without a model."""

    def find_unknown(self, settings: Settings, names: Collection[str]) -> set[str]:
        """Return the names that match no model; this reads the disk."""

    def why_pins_do_not_fit(self, settings: Settings) -> str | None:
        """Return an error message if the pinned models exceed the memory together."""

    def find_conflict(self, settings: Settings) -> str | None:
        """Return a sentence about two things of one name, if there are any."""

    def find_bad_file(self, settings: Settings) -> str | None:
        """Return an error message about an unusable file of the settings, if there is one."""
