"""The items of a streamed answer, with the events that open, extend and close each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from greenroom.http.answering.reasoning_signature import sign
from greenroom.http.answering.tools.text_input import TextInputReader
from greenroom.http.responses.output.output_items import (
    CallKinds,
    ItemStatus,
    call_item,
    item_id,
    message_item,
    output_text,
    reasoning_item,
    summary_text,
)
from greenroom.schemas.events.events import TokenLogprob
from greenroom.schemas.messages.messages import ToolCall

Event = tuple[str, dict[str, Any]]
"""Type of an event, and its members without type and number."""


class ItemStream(ABC):
    """One item while it is being generated.

    Args:
        ident: The item's id.
        index: Index of the item in the output.
    """

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
        """Take generated text, and return the text to send to the client."""
        return piece

    def rest(self) -> str:
        """Return the text held back until the item ends."""
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
        """Return the event that opens an item, with the item still empty."""
        return "response.output_item.added", {"output_index": self.index, "item": item}


class MessageStream(ItemStream):
    """A message of the assistant."""

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
    """A reasoning item, with its text as the one part of the summary.

    Args:
        encrypts: True to add the encrypted content.
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
    """A tool call, whose deltas are pieces of its arguments.

    Args:
        call: Name and id of the call; its arguments arrive as deltas.
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
    """Return all events that close an item; the last one has the whole item."""
    done = {"output_index": stream.index, "item": stream.item(status)}
    return *stream.end(status), ("response.output_item.done", done)
