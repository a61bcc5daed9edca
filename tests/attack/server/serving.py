"""The server that is attacked, as a command, and a folder for what it leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(logs: Path | None) -> Iterator[Path]:
    """Yield the folder that keeps the logs, or one that is gone afterwards."""
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        yield logs
        return
    with tempfile.TemporaryDirectory(prefix="greenroom-attack-") as folder:
        yield Path(folder)


def server_command(folders: tuple[Path, ...], hostile: tuple[Path, ...] = ()) -> Callable[[int], list[str]]:
    """Return what starts a server of those models on a port, no more than four of them loaded at once."""
    from greenroom.tests.support.servers.server_processes import GREENROOM

    loaded = "2" if len(folders) <= 3 else "4"
    options = ("--max-loaded-models", loaded, "--log-format", "json", "--kv-cache-bytes", str(64 << 20))

    def command(port: int) -> list[str]:
        return [*GREENROOM, "serve", *map(str, (*folders, *hostile)), "--port", str(port), *options]

    return command
