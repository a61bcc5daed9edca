"""Starts of other people's clients with settings of their own, outside of the user's files."""

from __future__ import annotations

import os
import shlex
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

    def lines(self, folder: Path) -> list[str]:
        """Return the lines to paste into bash, zsh or fish that do the same, and leave their variables alone.

        Args:
            folder: The client's own folder, which may begin with `$HOME`.
        """
        lines = []
        for name, text in self.files.items():
            path = folder / name
            lines += [
                f"mkdir -p -m 700 {_pasted(path.parent)}",
                f"printf '%s\\n' {_pasted(text)} > {_pasted(path)}",
            ]
        words = [f"-u {name}" for name in self.removed]
        words += [_pasted(f"{name}={value}") for name, value in self.environment.items()]
        return [*lines, " \\\n  ".join(["env", *words, " ".join(map(_pasted, self.command))])]

    def variables(self, user: Mapping[str, str]) -> dict[str, str]:
        """Return the client's whole environment, from the user's."""
        kept = {name: value for name, value in user.items() if name not in self.removed}
        return {**kept, **self.environment}


def _pasted(word: str | Path) -> str:
    """Return a word as a shell reads it; one that names the home folder is left for the shell to complete."""
    text = str(word)
    return f'"{text}"' if "$HOME/" in text else shlex.quote(text)
