"""Processes of a local server and of mlx-lm's bare loops, of which only one computes at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from greenroom.tests.bench.load_client import BenchError, ChatMessages

START_SECONDS = 180
LOOP_SECONDS = 900


@attrs.frozen
class BareRun:
    """Cost of a run without a server, for the same prompts and token counts.

    Args:
        seconds: Wall time of prefill and decode, in seconds.
        prompt_tokens: Number of tokens of all prompts.
        tokens: Number of generated tokens.
        cpu: Processor time in seconds.
    """

    seconds: float
    prompt_tokens: int
    tokens: int
    cpu: float


@attrs.frozen
class LocalServer:
    """A server that was started for the measurement."""

    address: str
    pid: int


@asynccontextmanager
async def open_local_server(model: str, arguments: Sequence[str] = ()) -> AsyncIterator[LocalServer]:
    """Run `greenroom serve MODEL` on a free port.

    Raises:
        BenchError: It does not start.
    """
    command = [
        *(sys.executable, "-m", "greenroom.http.command_line", "serve", model, "--port", "0"),
        *("--log-format", "json", "--log-level", "info", "--db", ":memory:"),
        # Speculative decoding would measure the predictability of the prompts.
        *("--speculation", "off", *arguments),
    ]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    lines = _LineReader(process.stderr)
    line = b""
    try:
        with trio.move_on_after(START_SECONDS):
            while line := await lines.next():
                event = _as_event(line)
                if event.get("event") == "listening":
                    break
        if not line:
            raise BenchError(f"the server does not start: {lines.last.decode('utf-8', 'replace').strip()}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.discard)
            yield LocalServer(event["addresses"][0], process.pid)
            nursery.cancel_scope.cancel("the measurement is over")
    finally:
        with trio.move_on_after(20, shield=True):
            process.terminate()
            await process.wait()
        process.kill()


class BareLoops:
    """Client of mlx-lm's loops, which `greenroom.tests.bench.bare_process` runs without a server."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._lines = _LineReader(process.stdout)

    async def run(self, loop: str, prompts: Sequence[ChatMessages], tokens: Sequence[int]) -> BareRun:
        """Prefill and decode all prompts together.

        Args:
            loop: Name of the loop: `batch_generator` (mlx-lm's), `bare_loop` (forward pass and argmax only),
                `bare_prefill` (mlx-lm's, up to the first token of each prompt, sequentially) or
                `own_loop` (the worker's, with all its host work).
            tokens: Number of tokens to generate for each prompt, end tokens included.

        Raises:
            BenchError: The loop cannot run.
        """
        task: Mapping[str, Any] = {"loop": loop, "prompts": list(prompts), "tokens": list(tokens)}
        await self._input.send_all(json.dumps(task).encode() + b"\n")
        with trio.move_on_after(LOOP_SECONDS):
            answer = _as_event(await self._lines.next())
            if "seconds" in answer:
                return BareRun(**answer)
            raise BenchError(f"the bare loop fails: {answer.get('error', 'it has ended')}")
        raise BenchError("the bare loop does not answer")


@asynccontextmanager
async def open_bare_loops(model: str) -> AsyncIterator[BareLoops]:
    """Start the process of the bare loops, which computes only during `run`."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "greenroom.tests.bench.bare_process", model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )
    try:
        yield BareLoops(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def processor_time(pid: int) -> float:
    """Return the processor time of all living threads of a process, in seconds.

    The resolution is a nanosecond on Linux, and with `ps` elsewhere a hundredth of a second.
    """
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if threads:
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    shown = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True)
    seconds = 0.0
    for part in shown.stdout.strip().replace("-", ":").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds


class _LineReader:
    """Reads lines from a pipe."""

    def __init__(self, pipe: trio.abc.ReceiveStream) -> None:
        self._pipe = pipe
        self._unread = b""
        self.last = b""

    async def next(self) -> bytes:
        """Return the next line; empty at the end."""
        while b"\n" not in self._unread:
            piece = await self._pipe.receive_some()
            if not piece:
                return b""
            self._unread += piece
        self.last, _, self._unread = self._unread.partition(b"\n")
        return self.last + b"\n"

    async def discard(self) -> None:
        """Read and discard the rest, so that the pipe does not fill up."""
        while await self._pipe.receive_some():
            pass


def _as_event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
