"""The server-sent events of a streamed response."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from greenroom.http.answering.collecting import CollectedChoice
from greenroom.http.answering.event_stream import TellsNews, news_members
from greenroom.http.answering.explanation_body import sign
from greenroom.http.answering.tools import TextInputReader
from greenroom.http.encoding.encoding import (
    LINE_BREAKS,
    SERVER_SENT_EVENTS,
    json_ascii,
    json_string,
    token_logprobs,
)
from greenroom.http.responses.mcp_items import own_tool_events
from greenroom.http.responses.response_object import (
    CallKinds,
    ItemStatus,
    ResponseEcho,
    ResponseHead,
    ResponseLife,
    answered_members,
    call_item,
    encoded_response,
    ending,
    item_id,
    message_item,
    output_text,
    reasoning_item,
    summary_text,
)
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.events.result_events import ApprovalWanted, ServerCall, ToolResult, ToolsListed
from greenroom.schemas.messages.messages import ToolCall
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.responses_protocol import Heartbeat, RunEnded, RunEvent, RunStarted
from greenroom.schemas.stored import StoredResponse

DONE = b"data: [DONE]\n\n"
PADDING = 16  # Multiple of characters to which deltas of an obfuscated stream are padded


class ResponseStream(TellsNews):
    """Formats one streamed response.

    Formatting is deterministic: ids derive from the response's id, times from its head and from `clock`, so
    that the same events always yield the same bytes. The constant bytes of an item's deltas are built once,
    when it opens. The first events contain the model's parameters, so they wait until the prompt is admitted,
    or for the first heartbeat.

    Args:
        starting_after: Number of the last event that the client has; events up to it are not sent again.
        clock: Clock with Unix time in seconds, for the time of completion.
    """

    content_type = SERVER_SENT_EVENTS

    def __init__(
        self,
        echo: ResponseEcho,
        head: ResponseHead,
        *,
        starting_after: int = -1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.finished = False
        self._life = ResponseLife(echo, head, clock)
        self._head = head
        self._starting_after = starting_after
        self._number = 0
        self._open: ItemStream | None = None
        self._delta_head = self._delta_tail = b""
        self._items: list[dict[str, Any]] = []
        self._white_space: list[TextDelta] = []
        self._own_calls: dict[str, tuple[int, ServerCall]] = {}

    def opening(self) -> bytes:
        """Return nothing: the first events are sent once the prompt is admitted."""
        return b""

    def heartbeat(self) -> bytes:
        """Return an event that repeats the status, with news of the wait; clients ignore comments."""
        return self._created() + self._repeated(self._news.members())

    def failure(self, problem: Problem, usage: Usage | None = None) -> bytes:
        created = self._created()
        self.finished = True
        if self._open is not None:
            self._items.append(self._open.item("incomplete"))
        ended = None if usage is None else Finished("cancelled", usage)
        return created + self._state("failed", "failed", finished=ended, problem=problem) + DONE

    def without_output(self) -> Iterator[bytes]:
        """Yield the events of a response for which nothing is generated; each echoes the request."""
        yield self._created()
        self.finished = True
        yield self._state("completed", "completed", finished=Finished("stop", Usage())) + DONE

    def event(self, event: RunEvent) -> bytes:
        """Return the server-sent events for an event of the answer, or for an entry of a run's log."""
        if not isinstance(event, RunStarted | Heartbeat | RunEnded):
            self._news.record(event)
        if isinstance(event, QueueStatus):
            return b""
        if isinstance(event, Admitted):
            self._life.admit(event)
        return self._created() + self._format(event)

    def _created(self) -> bytes:
        """Return the events that open the response, once."""
        life = self._life
        if life.started:
            return b""
        life.started = True
        return self._state("created", life.state) + self._state(life.state, life.state)

    def _format(self, event: RunEvent) -> bytes:
        match event:
            case TextDelta():
                return self._text(event)
            case ReasoningDelta(text):
                return self._reasoning(text)
            case ToolCallDelta():
                return self._tool_call(event)
            case ToolsListed() | ServerCall() | ToolResult() | ApprovalWanted():
                return self._own_tool(event)
            case Finished():
                return self._finish(event)
            case Failed(problem, usage):
                return self.failure(problem, usage)
            case RunStarted():
                was_queued, self._life.queued = self._life.queued, False
                return self._repeated(self._news.members()) if was_queued else b""
            case Heartbeat(news):
                return self._repeated(news_members(news))
            case RunEnded(response):
                return self._end(response)
            case _:
                return b""

    def _text(self, event: TextDelta) -> bytes:
        if isinstance(self._open, MessageStream):
            return self._delta(event.text, event.logprobs)
        self._white_space.append(event)
        if not event.text.strip():
            return b""
        white_space = self._white_space
        start = self._begin(lambda index: MessageStream(item_id("msg", self._head.id, index), index))
        text = "".join(delta.text for delta in white_space)
        return start + self._delta(text, [entry for delta in white_space for entry in delta.logprobs])

    def _reasoning(self, text: str) -> bytes:
        if isinstance(self._open, ReasoningStream):
            self._white_space = []
            return self._delta(text)
        ident, encrypts = self._head.id, self._life.echo.encrypts_reasoning
        start = self._begin(lambda index: ReasoningStream(item_id("rs", ident, index), index, encrypts))
        return start + self._delta(text)

    def _tool_call(self, event: ToolCallDelta) -> bytes:
        start = b""
        if event.id is not None:
            call = ToolCall(event.id, event.name or "", "")
            start = self._begin(lambda index: CallStream(call, self._head.id, index, self._life.echo.calls))
        return start + self._piece(event.arguments)

    def _own_tool(self, event: ToolsListed | ServerCall | ToolResult | ApprovalWanted) -> bytes:
        """Return the events of what this server does itself; several of its calls may be open at once."""
        ended_before, self._white_space = self._end_item("completed"), []
        steps, index, item = own_tool_events(event, self._head.id, len(self._items), self._own_calls)
        self._items[index : index + 1] = [item]
        return ended_before + b"".join(map(self._event, steps))

    def _begin(self, make: Callable[[int], ItemStream]) -> bytes:
        """Open an item, and build the constant bytes of its deltas."""
        ended_before, self._white_space = self._end_item("completed"), []
        self._open = stream = make(len(self._items))
        self._delta_head, self._delta_tail = _around_delta(stream)
        return ended_before + b"".join(self._event(event) for event in stream.begin())

    def _delta(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        assert self._open is not None
        self._open.pieces.append(text)
        tail = self._delta_tail
        if logprobs:
            self._open.logprobs += logprobs
            tail = b',"logprobs":%b,"sequence_number":' % token_logprobs(logprobs)
        number, self._number = self._number, self._number + 1
        if number <= self._starting_after:
            return b""
        if self._life.echo.obfuscates:
            tail = b',"obfuscation":"%b"%b' % (_padding(text), tail)
        return b"%b%b%b%d}\n\n" % (self._delta_head, json_string(text), tail, number)

    def _piece(self, arguments: str) -> bytes:
        text = self._open.accept(arguments) if arguments and self._open is not None else ""
        return self._delta(text) if text else b""

    def _end_item(self, status: ItemStatus) -> bytes:
        if self._open is None:
            return b""
        rest = self._open.rest()
        last = self._delta(rest) if rest else b""
        events = item_end(self._open, status)
        self._items.append(events[-1][1]["item"])
        self._open = None
        return last + b"".join(map(self._event, events))

    def _finish(self, event: Finished) -> bytes:
        status, incomplete = ending(event)
        closed = self._close(status)
        return closed + self._state(_last_event(status), status, finished=event, incomplete=incomplete) + DONE

    def _end(self, stored: StoredResponse) -> bytes:
        if stored.background and stored.events is None:
            # Earlier events are lost, so this one is numbered after the last one that the client has.
            self._number = max(self._number, self._starting_after + 1)
        self.finished = True
        closed = b"" if stored.status == "failed" else self._close(stored.status)
        safe = stored.body.translate(LINE_BREAKS).encode("utf-8", "backslashreplace")
        return closed + self._sent(f"response.{_last_event(stored.status)}", b'"response":' + safe) + DONE

    def _close(self, status: str) -> bytes:
        """Close the last item, and return its final events."""
        self.finished = True
        start = b""
        if not self._items and self._open is None:
            # Some clients treat a response without any item as lost.
            start = self._begin(lambda index: MessageStream(item_id("msg", self._head.id, index), index))
        return start + self._end_item("completed" if status == "completed" else "incomplete")

    def _repeated(self, news: bytes) -> bytes:
        """Return an event that repeats the status; news are members of the event, beside the response."""
        state = self._life.state
        return self._sent(f"response.{state}", self._life.encoded(state) + news)

    def _state(self, kind: str, status: str, **members: Any) -> bytes:
        """Return a lifecycle event, which contains the response in its present state."""
        output = self._items if self.finished else ()
        return self._sent(f"response.{kind}", self._life.encoded(status, output, **members))

    def _event(self, event: Event) -> bytes:
        return self._sent(event[0], json_ascii(event[1])[1:-1])

    def _sent(self, kind: str, members: bytes) -> bytes:
        number, self._number = self._number, self._number + 1
        if number <= self._starting_after:
            return b""
        name = kind.encode()
        return b'event: %b\ndata: {"type":"%b",%b,"sequence_number":%d}\n\n' % (name, name, members, number)


def _last_event(status: str) -> str:
    # The API has no event type for cancelled responses.
    return "incomplete" if status == "cancelled" else status


def _around_delta(stream: ItemStream) -> tuple[bytes, bytes]:
    """Return the bytes before and after the text of an item's deltas, up to the sequence number."""
    kind, place = stream.delta_type.encode(), json_ascii(stream.piece_place)[1:-1]
    logprobs = b',"logprobs":[]' if isinstance(stream, MessageStream) else b""
    head = b'event: %b\ndata: {"type":"%b",%b,"delta":' % (kind, kind, place)
    return head, logprobs + b',"sequence_number":'


def _padding(text: str) -> bytes:
    return secrets.token_urlsafe(PADDING)[: PADDING - len(text) % PADDING].encode()


Event = tuple[str, dict[str, Any]]
"""Type of an event, and its members without type and number."""


class ItemStream(ABC):
    """One item while it is being generated."""

    delta_type: str
    """Type of the events that carry its deltas."""

    def __init__(self, ident: str, index: int) -> None:
        self.id = ident
        self.index = index
        self.pieces: list[str] = []
        self.logprobs: list[TokenLogprob] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def place(self) -> dict[str, Any]:
        """Members that identify an event's item."""
        return {"item_id": self.id, "output_index": self.index}

    @property
    @abstractmethod
    def piece_place(self) -> dict[str, Any]:
        """Members that identify the part of the item to which a delta belongs."""

    def accept(self, piece: str) -> str:
        return piece

    def rest(self) -> str:
        return ""

    @abstractmethod
    def item(self, status: ItemStatus) -> dict[str, Any]:
        """Return the item in its present state."""

    @abstractmethod
    def begin(self) -> Iterator[Event]:
        """Yield the events that open the item."""

    @abstractmethod
    def end(self, status: ItemStatus) -> Iterator[Event]:
        """Yield the events that close the item, except for the last one with the whole item."""

    def added(self, item: dict[str, Any]) -> Event:
        return "response.output_item.added", {"output_index": self.index, "item": item}


class MessageStream(ItemStream):
    delta_type = "response.output_text.delta"

    @property
    def piece_place(self) -> dict[str, Any]:
        return {**self.place, "content_index": 0}

    def item(self, status: ItemStatus) -> dict[str, Any]:
        return message_item(self.id, self.text, status, self.logprobs)

    def begin(self) -> Iterator[Event]:
        yield self.added({**message_item(self.id, "", "in_progress"), "content": []})
        yield "response.content_part.added", {**self.piece_place, "part": output_text("")}

    def end(self, status: ItemStatus) -> Iterator[Event]:
        """Yield the events that close the item, except for the last one."""
        part = output_text(self.text, self.logprobs)
        text = {"text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", {**self.piece_place, **text}
        yield "response.content_part.done", {**self.piece_place, "part": part}


class ReasoningStream(ItemStream):
    """A reasoning item, with its text as the one part of the summary. `encrypts`: True to add the encrypted
    content.
    """

    delta_type = "response.reasoning_summary_text.delta"

    def __init__(self, ident: str, index: int, encrypts: bool) -> None:
        super().__init__(ident, index)
        self._encrypts = encrypts

    @property
    def piece_place(self) -> dict[str, Any]:
        return {**self.place, "summary_index": 0}

    def item(self, status: ItemStatus) -> dict[str, Any]:
        encrypted = sign(self.text, hidden=True) if self._encrypts else None
        return reasoning_item(self.id, self.text, status, encrypted)

    def begin(self) -> Iterator[Event]:
        yield self.added({**reasoning_item(self.id, "", "in_progress", None), "summary": []})
        yield "response.reasoning_summary_part.added", {**self.piece_place, "part": summary_text("")}

    def end(self, status: ItemStatus) -> Iterator[Event]:
        """Yield the events that close the item, except for the last one."""
        yield "response.reasoning_summary_text.done", {**self.piece_place, "text": self.text}
        yield "response.reasoning_summary_part.done", {**self.piece_place, "part": summary_text(self.text)}


class CallStream(ItemStream):
    """A tool call, whose deltas are pieces of its arguments. `call`: name and id of the call; its arguments
    arrive as deltas.
    """

    def __init__(self, call: ToolCall, response_id: str, index: int, calls: CallKinds) -> None:
        prefix, self._kind, self._argument = "fc", "response.function_call_arguments", "arguments"
        self._reader = TextInputReader() if call.name in calls.custom else None
        if self._reader is not None:
            prefix, self._kind, self._argument = "ctc", "response.custom_tool_call_input", "input"
        super().__init__(item_id(prefix, response_id, index), index)
        self.delta_type = f"{self._kind}.delta"
        self._call = call
        self._response_id = response_id
        self._calls = calls

    @property
    def piece_place(self) -> dict[str, Any]:
        """Members that identify the item."""
        return self.place

    def accept(self, piece: str) -> str:
        return piece if self._reader is None else self._reader.feed(piece)

    def rest(self) -> str:
        return "" if self._reader is None else self._reader.finish()

    def item(self, status: ItemStatus) -> dict[str, Any]:
        call = ToolCall(self._call.id, self._call.name, self.text)
        return call_item(call, self._response_id, self.index, status, self._calls)

    def begin(self) -> Iterator[Event]:
        yield self.added(self.item("in_progress"))

    def end(self, status: ItemStatus) -> Iterator[Event]:
        """Yield the events that close the item, except for the last one."""
        name = {"name": self._call.name} if self._argument == "arguments" else {}
        yield f"{self._kind}.done", {**self.place, **name, self._argument: self.text}


def item_end(stream: ItemStream, status: ItemStatus) -> Sequence[Event]:
    done = {"output_index": stream.index, "item": stream.item(status)}
    return *stream.end(status), ("response.output_item.done", done)


@attrs.frozen
class ResponseFormatter:
    """Formats the response to one request. `answer_id`: the response's id, `resp_…`; `created`: Unix time of
    creation in seconds.
    """

    echo: ResponseEcho
    answer_id: str
    created: int = attrs.field(factory=lambda: int(time.time()))

    def stream(self, model: str) -> ResponseStream:
        return ResponseStream(self.echo, ResponseHead(self.answer_id, model, self.created))

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> bytes:
        [choice] = choices
        head = ResponseHead(self.answer_id, model, self.created)
        echo = self.echo.answered_with(choice.parameters)
        return encoded_response(echo, answered_members(echo, head, choice, int(time.time())))
