"""The command line of the attacked server, and a folder for its logs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(logs: Path | None) -> Iterator[Path]:
    """Yield the folder for logs, or else a temporary one."""
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        yield logs
        return
    with tempfile.TemporaryDirectory(prefix="greenroom-attack-") as folder:
        yield Path(folder)


def server_command(folders: tuple[Path, ...], hostile: tuple[Path, ...] = ()) -> Callable[[int], list[str]]:
    """Return a function from a port to the command line of a server that loads few of the models at once."""
    from greenroom.tests.support.servers.server_processes import GREENROOM

    loaded = "2" if len(folders) <= 3 else "4"
    options = ("--max-loaded-models", loaded, "--log-format", "json", "--kv-cache-bytes", str(64 << 20))

    def command(port: int) -> list[str]:
        return [*GREENROOM, "serve", *map(str, (*folders, *hostile)), "--port", str(port), *options]

    return command
