"""A store in a separate process, controlled by lines of text, for tests that kill it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from greenroom.actors.store.tables import Tables, ask_store_or_failed
from greenroom.actors.system import System
from greenroom.schemas.events.events import Failed
from greenroom.schemas.protocols.responses_protocol import CancelRun, Deleted, DeleteRun, Retrieve
from greenroom.schemas.protocols.store_protocol import Committed
from greenroom.schemas.stored import EVERYBODY, StoredResponse
from greenroom.tests.support.actors.stored_records import change, commit, conversation, response, storing

LARGE = "many words " * 2000


class StoreProcess:
    """The parent's handle on a store process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, *words: str) -> None:
        """Send a command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Return the next line of output; empty if the process has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, *words: str) -> str:
        """Send a command; return its answer: a class name, or the code of a problem."""
        self.tell(*words)
        return self.line()


@contextmanager
def store_process(path: Path) -> Iterator[StoreProcess]:
    """Run a store process on a database file."""
    command = [sys.executable, "-m", "greenroom.tests.support.actors.store_process", str(path)]
    source = str(Path(__file__).resolve().parents[3] / ".src")
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as process:
        try:
            yield StoreProcess(process)
        finally:
            process.kill()


async def _run(path: str) -> None:
    async with storing(path) as system:
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            command, *words = line.split()
            await _COMMANDS[command](system, *words)


async def _begin(system: System, name: str) -> None:
    begun = response(name, status="in_progress", output=(), background=True)
    await _store(system, lambda tables: tables.responses.begin(begun))


async def _find(system: System, name: str) -> None:
    found = await system.refs.responses.ask(Retrieve(name, EVERYBODY), StoredResponse)
    print(found.problem.code if isinstance(found, Failed) else found.status, flush=True)


async def _cancel(system: System, name: str) -> None:
    _say(await system.refs.responses.ask(CancelRun(name, EVERYBODY), StoredResponse))


async def _delete(system: System, name: str) -> None:
    _say(await system.refs.responses.ask(DeleteRun(name, EVERYBODY), Deleted))


async def _commit(system: System, name: str, text: str = "") -> None:
    await _store(system, lambda tables: tables.responses.commit(response(name, raw=text)))


async def _commit_many(system: System, name: str, count: str) -> None:
    """Store a conversation of many turns, and print each stored one."""
    await change(system.refs.store, lambda tables: tables.conversations.create(conversation(name)))
    for number in range(int(count)):
        turn = response(f"{name}-{number}", conversation=name, raw=LARGE)
        await commit(system.refs.store, turn)
        print(turn.id, flush=True)


async def _limit(_system: System, size: str) -> None:
    """Limit the size of files, as on a full disk."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size) if int(size) > 0 else hard, hard))
    print("limited", flush=True)


async def _store(system: System, function: Callable[[Tables], None]) -> None:
    failed = await ask_store_or_failed(system.refs.store, function, writes=True)
    _say(failed or Committed())


def _say(answer: Any) -> None:
    print(answer.problem.code if isinstance(answer, Failed) else type(answer).__name__, flush=True)


_COMMANDS: dict[str, Any] = {
    "begin": _begin,
    "find": _find,
    "cancel": _cancel,
    "delete": _delete,
    "commit": _commit,
    "many": _commit_many,
    "limit": _limit,
}

if __name__ == "__main__":
    import structlog

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    trio.run(_run, sys.argv[1])
