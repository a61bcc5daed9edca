"""Starts of other people's clients with settings of their own, outside of the user's files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

_PRIVATE = 0o600


@attrs.frozen
class Launch:
    """The start of a client.

    Args:
        command: Program and its arguments.
        environment: Variables that it gets besides those of the user.
        files: Contents by path below the client's own folder; rewritten at each start.
        removed: Variables of the user's that it must not get, since they would lead it elsewhere.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    files: Mapping[str, str] = attrs.field(factory=dict)
    removed: Sequence[str] = ()

    def write(self, folder: Path) -> None:
        """Write the files into the client's own folder, which nobody else may read: they may hold a key.

        Raises:
            OSError: A file cannot be written.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(unfinished, path)

    def variables(self, user: Mapping[str, str]) -> dict[str, str]:
        """Return the client's whole environment, from the user's."""
        kept = {name: value for name, value in user.items() if name not in self.removed}
        return {**kept, **self.environment}
