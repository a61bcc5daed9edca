"""The log of a run's events: all readers of a response that is being generated see the same order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import trio

from greenroom.actors.core.reply import Grant, ReplyBuffer
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.messages import TextPart, Tool
from greenroom.schemas.protocols.responses_protocol import Heartbeat, RunEnded, RunEvent, RunStarted
from greenroom.schemas.stored import StoredResponse


class EventLog:
    """A log of events for any number of readers at different positions.

    A delta is merged into the previous one only until somebody reads that: reading freezes all present
    entries. So every reader counts the same entries, and a run without readers takes no more memory than its
    text.

    Attributes:
        changed: Parking lot where readers wait for the next entry.
        last: Last entry; None until it is present.
        model: Name of the answering model; known before the first entry.
        backend: Name of the remote that answers, or `local`, likewise; empty for a log from the store.
    """

    def __init__(self, entries: Iterable[RunEvent] = (), model: str | None = None) -> None:
        self.changed = trio.lowlevel.ParkingLot()
        self.last: RunEnded | Failed | None = None
        self.model = model
        self.backend = ""
        self._fixed: list[RunEvent] = [*entries]
        self._tail = ReplyBuffer()

    @property
    def ended(self) -> bool:
        return self.last is not None

    def append(self, event: RunEvent) -> None:
        """Append an entry, or merge it into the last one."""
        self._tail.add(event)
        self.changed.unpark_all()

    def end(self, event: RunEnded | Failed) -> None:
        self.last = event
        self.append(event)

    def entries(self, start: int = 0, most: int | None = None) -> list[RunEvent]:
        """Return at most `most` entries from `start` on; this freezes all present entries."""
        if self._tail:
            self._fixed += self._tail.drain()
        return self._fixed[start : None if most is None else start + most]


_PIECE = 500  # Number of events encoded at once. The JSON encoder keeps the GIL, so a call must not take long


def encode_events(events: Iterable[RunEvent]) -> str:
    """Return events as a JSON array of short arrays, without data that the response itself contains."""
    rows = [row for event in events if (row := _row(event)) is not None]
    pieces = [
        json.dumps(rows[start : start + _PIECE], ensure_ascii=False, separators=(",", ":"))[1:-1]
        for start in range(0, len(rows), _PIECE)
    ]
    # Half a surrogate pair has no UTF-8 encoding, but JSON can escape it.
    return f"[{','.join(pieces)}]".encode("utf-8", "backslashreplace").decode()


def decode_events(text: str) -> list[RunEvent]:
    return [_event(row) for row in json.loads(text)]


def _row(event: RunEvent) -> list[Any] | None:
    match event:
        case TextDelta(text, _, logprobs):
            return ["t", text, *([[_logprob_row(entry) for entry in logprobs]] if logprobs else [])]
        case ReasoningDelta(text):
            return ["r", text]
        case ToolCallDelta(call, None, _, arguments):
            return ["a", call, arguments]
        case ToolCallDelta(call, ident, name, arguments):
            return ["c", call, ident, name, arguments]
        case Admitted(prompt_tokens, dropped):
            return ["p", prompt_tokens, dropped]
        case ToolsListed(server, tools, error):
            return ["l", server, [[tool.name, tool.description, tool.parameters] for tool in tools], error]
        case ServerCall() | ApprovalWanted():
            return ["m" if isinstance(event, ServerCall) else "w", *attrs.astuple(event)]
        case ToolResult(ident, _, failed, seconds):
            return ["o", ident, event.text, failed, seconds]
        case RunStarted():
            return ["s"]
        case Heartbeat(None):
            return ["h"]
        case Heartbeat(QueueStatus() as status):
            return ["h", "q", attrs.asdict(status)]
        case Heartbeat(PromptProgress() as progress):
            return ["h", "p", attrs.asdict(progress)]
        case _:
            return None


def _event(row: list[Any]) -> RunEvent:
    match row:
        case ["t", text]:
            return TextDelta(text)
        case ["t", text, logprobs]:
            return TextDelta(text, logprobs=tuple(map(_logprob, logprobs)))
        case ["r", text]:
            return ReasoningDelta(text)
        case ["a", call, arguments]:
            return ToolCallDelta(call, arguments=arguments)
        case ["c", call, ident, name, arguments]:
            return ToolCallDelta(call, ident, name, arguments)
        case ["l", server, tools, error]:
            return ToolsListed(server, tuple(Tool(*tool) for tool in tools), error)
        case ["m", *members]:
            return ServerCall(*members)
        case ["w", *members]:
            return ApprovalWanted(*members)
        case ["o", ident, output, failed, seconds]:
            return ToolResult(ident, (TextPart(output),), failed, seconds)
        case ["p", prompt_tokens, dropped]:
            return Admitted(prompt_tokens, dropped)
        case ["s"]:
            return RunStarted()
        case ["h"]:
            return Heartbeat()
        case ["h", "q", status]:
            models = {name: tuple(status[name]) for name in ("loading", "unloading")}
            return Heartbeat(QueueStatus(**{**status, **models}))
        case ["h", "p", progress]:
            return Heartbeat(PromptProgress(**progress))
    raise ValueError(f"no event: {row!r}")


def _logprob_row(entry: TokenLogprob) -> list[Any]:
    return [*_token_row(entry.token, entry.logprob), [_token_row(*other) for other in entry.top]]


def _token_row(token: Token, logprob: float) -> list[Any]:
    return [token.text, token.bytes.hex(), logprob]


def _logprob(row: list[Any]) -> TokenLogprob:
    *token, top = row
    return TokenLogprob(*_token(token), tuple(map(_token, top)))


def _token(row: list[Any]) -> tuple[Token, float]:
    text, written, logprob = row
    return Token(text, bytes.fromhex(written)), logprob


_AT_ONCE = 256
"""Maximum number of entries returned at once, so that formatting a long log does not block other tasks."""


class Subscription:
    """A reader of a run's log, from its beginning, for streaming.

    A slow reader costs no memory, since the log belongs to the run.
    """

    def __init__(self, log: EventLog, on_close: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._place = 0
        self._on_close: Callable[[], None] | None = on_close

    @property
    def model(self) -> str | None:
        """Name of the answering model; known before the first entry."""
        return self._log.model

    @property
    def backend(self) -> str:
        return self._log.backend

    async def receive(self) -> RunEvent:
        """Return the next entry. It may be cancelled and called again. Raises trio.EndOfChannel: no entries
        are left.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (entries := self._log.entries(self._place, 1)):
            if self._log.ended:
                raise trio.EndOfChannel
            await self._log.changed.park()
        self._place += 1
        return entries[0]

    def receive_ready(self) -> list[RunEvent]:
        """Return the entries available now, up to a limit."""
        entries = self._log.entries(self._place, _AT_ONCE)
        self._place += len(entries)
        return entries

    async def wait_ended(self) -> RunEnded | Failed:
        """Wait for the last entry and return it, without reading the others."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while (last := self._log.last) is None:
            await self._log.changed.park()
        return last

    def close(self) -> None:
        """Stop reading; closing twice does nothing."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


@attrs.frozen(eq=False)
class Subscribed(Grant):
    """The answer with a subscription to a run, which is closed if nobody receives it. `response`: stored
    response, finished or not; None if it is stored only at its end.
    """

    subscription: Subscription
    response: StoredResponse | None

    def close(self) -> None:
        self.subscription.close()


class ConversationLock(Grant):
    """A lock on a conversation for one turn. `release`: callback, called once with the conversation's id."""

    def __init__(self, conversation: str, release: Callable[[str], None]) -> None:
        self.conversation = conversation
        self._release: Callable[[str], None] | None = release

    def take(self) -> ConversationLock:
        release, self._release = self._release, None
        return ConversationLock(self.conversation, release or (lambda _: None))

    def close(self) -> None:
        """Release the conversation; closing twice does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release(self.conversation)
