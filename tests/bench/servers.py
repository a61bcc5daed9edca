"""Measured servers, and the processes of a local one and of mlx-lm's bare loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from greenroom.tests.bench.load_client import (
    Answer,
    BenchError,
    ChatMessages,
    LoadClient,
    Prompts,
    RecordedResponse,
    find_endpoint,
    open_response_recorder,
    parse_answer,
    text_of,
)

START_SECONDS = 180
LOOP_SECONDS = 900
SERVE = ("-m", "greenroom.http.command_line", "serve")


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
async def open_local_server(
    model: str, arguments: Sequence[str] = (), program: Sequence[str] = SERVE
) -> AsyncIterator[LocalServer]:
    """Run `greenroom serve MODEL`, or a program that logs its address like it, on a free port.

    Raises:
        BenchError: It does not start.
    """
    command = [
        *(sys.executable, *program, model, "--port", "0"),
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
    """Client of mlx-lm's loops, which `greenroom.tests.bench.bare_loops` runs without a server."""

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
        [sys.executable, "-m", "greenroom.tests.bench.bare_loops", model],
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


_SHORT, _LONG = 32, 256
"""Lengths in words of two prompts from which the number of tokens per word is estimated."""
_USUAL_TOKENS_PER_WORD = 1.3
"""Tokens per English word, for servers that do not report counts."""


@attrs.frozen
class Request:
    """One chat request."""

    messages: ChatMessages
    max_tokens: int
    fields: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Exchange:
    """A conversation and its response."""

    messages: ChatMessages
    answer: Answer

    @property
    def prompt_tokens(self) -> int:
        """Number of prompt tokens by the server's count, else an estimate."""
        words = sum(len(text_of(message["content"]).split()) for message in self.messages)
        return self.answer.prompt_tokens or round(words * _USUAL_TOKENS_PER_WORD)


@attrs.frozen
class ProcessorTime:
    """Processor time used so far by this process and by a local server, in seconds."""

    client: float
    server: float | None


@attrs.define
class TargetServer:
    """A measured server.

    Args:
        pid: Process id of the server, if it runs locally.
        bare_loops: Bare loops over the same model, if there are any.
    """

    client: LoadClient
    pid: int | None = None
    bare_loops: BareLoops | None = None
    _accepted: dict[str, bool] = attrs.Factory(dict)
    _prompt_cost: tuple[float, float] | None = None

    @property
    def address(self) -> str:
        """The base URL of the server."""
        return self.client.endpoint.base

    async def ask(self, messages: ChatMessages, max_tokens: int, **fields: Any) -> Exchange:
        """Send one request, and wait for its response."""
        return Exchange(messages, parse_answer(await self.client.ask(messages, max_tokens, **fields)))

    async def ask_together(self, requests: Sequence[Request]) -> list[Exchange]:
        """Send requests concurrently; return the exchanges in their order when all are complete."""
        responses: dict[int, RecordedResponse] = {}

        async def ask(number: int, request: Request) -> None:
            responses[number] = await self.client.ask(request.messages, request.max_tokens, **request.fields)

        async with trio.open_nursery() as nursery:
            for number, request in enumerate(requests):
                nursery.start_soon(ask, number, request)
        return [Exchange(each.messages, parse_answer(responses[i])) for i, each in enumerate(requests)]

    async def run_bare_loop(self, loop: str, exchanges: Sequence[Exchange]) -> BareRun | None:
        """Run a bare loop over the answered prompts; return None if there is no loop or no response."""
        answered = [exchange for exchange in exchanges if exchange.answer.tokens]
        if self.bare_loops is None or not answered:
            return None
        prompts = [exchange.messages for exchange in answered]
        return await self.bare_loops.run(loop, prompts, [exchange.answer.tokens for exchange in answered])

    def processor_time(self) -> ProcessorTime:
        """Return the processor time so far."""
        return ProcessorTime(time.process_time(), None if self.pid is None else processor_time(self.pid))

    async def accepted_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the server accepts, testing each only once."""
        unknown = {name: value for name, value in fields.items() if name not in self._accepted}
        if unknown:
            together = await self._accepts(unknown)
            for name, value in unknown.items():
                self._accepted[name] = together or await self._accepts({name: value})
        return {name: value for name, value in fields.items() if self._accepted[name]}

    async def words_for_tokens(self, tokens: int) -> int:
        """Return the number of random words whose prompt has about that many tokens by the server's count."""
        if self._prompt_cost is None:
            prompts = Prompts(seed=0)
            short = (await self.ask(prompts.chat(_SHORT), 1)).answer.prompt_tokens
            long = (await self.ask(prompts.chat(_LONG), 1)).answer.prompt_tokens
            per_word = (long - short) / (_LONG - _SHORT)
            self._prompt_cost = (
                (per_word, short - per_word * _SHORT) if per_word > 0 else (_USUAL_TOKENS_PER_WORD, 0.0)
            )
        per_word, overhead = self._prompt_cost
        return max(round((tokens - overhead) / per_word), 1)

    async def _accepts(self, fields: Mapping[str, Any]) -> bool:
        exchange = await self.ask([{"role": "user", "content": "Hello"}], 1, **fields)
        return not exchange.answer.refused


@attrs.frozen(kw_only=True)
class TargetOptions:
    """Options that choose the servers to measure."""

    target: str
    model: str | None = None
    against: str | None = None
    bare: bool = True
    serve: tuple[str, ...] = ()

    @property
    def is_url(self) -> bool:
        """True if the target is the URL of a server."""
        return is_url(self.target)


def is_url(text: str) -> bool:
    """Return whether a target is the URL of a server and not a model."""
    return text.startswith(("http://", "https://"))


async def open_targets(options: TargetOptions, stack: AsyncExitStack) -> list[TargetServer]:
    """Open the servers to measure; for a model, start a server, and the bare loops if requested."""
    address, pid, loops = options.target, None, None
    if not options.is_url:
        server = await stack.enter_async_context(open_local_server(options.target, options.serve))
        address, pid = server.address, server.pid
        if options.bare:
            loops = await stack.enter_async_context(open_bare_loops(options.target))
    key = os.environ.get("OPENAI_API_KEY", "none")
    recorder = await stack.enter_async_context(open_response_recorder())
    endpoint = await find_endpoint(address, options.model, key)
    targets = [TargetServer(LoadClient(endpoint, recorder), pid, loops)]
    if options.against is not None:
        other = await find_endpoint(options.against, None, key)
        targets.append(TargetServer(LoadClient(other, recorder)))
    return targets
