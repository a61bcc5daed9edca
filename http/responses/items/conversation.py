"""Conversion of items to protocol-independent messages: groups items, and matches results with calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenroom.http.answering.reasoning_signature import LEFT_OUT, signed_reasoning
from greenroom.http.answering.requests.current_request import add_notice
from greenroom.http.answering.tools.call_arguments import ArgumentCheck
from greenroom.http.answering.tools.custom_tools import custom_call
from greenroom.http.media.media_reader import MediaReader
from greenroom.http.responses.items.content_parts import content_parts, content_texts
from greenroom.http.responses.items.hosted_items import HostedCall, HostedResult, hosted_parts
from greenroom.http.responses.tools.tools import definitions, parse_tools
from greenroom.schemas.messages.messages import (
    MAX_TOOLS,
    ContentPart,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
)
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing
from greenroom.schemas.responses.items import (
    MAX_ENCRYPTED_CONTENT,
    NOTE,
    CallOutputItem,
    CompactionItem,
    CustomCallItem,
    FunctionCallItem,
    HostedItem,
    Item,
    ItemReference,
    MessageItem,
    ReasoningItem,
    ResolvedItem,
    ToolsItem,
)


class Conversation:
    """Reads the items of a conversation, from first to last.

    Args:
        whole: True to reject a result without its call.
        proceed: Callback between items; raises once the request is cancelled.

    Attributes:
        tools: Tools that the items have added.
    """

    def __init__(self, *, whole: bool = True, proceed: Callable[[], None] | None = None) -> None:
        self._proceed = proceed or (lambda: None)
        self.tools: list[Tool] = []
        self._whole = whole
        self._messages: list[Message] = []
        self._turn: _Turn | None = None
        self._called: set[str] = set()
        self._loaded: set[str] = set()
        self._arguments = ArgumentCheck()
        self._media = MediaReader()

    def read(self, items: Sequence[Item], field: str) -> None:
        """Read the next items.

        Args:
            field: The items' parameter name, for errors.

        Raises:
            ProblemError: 400 that names the field, 404 for an item that is not stored here.
        """
        for index, item in enumerate(items):
            self._proceed()
            self._read(item, f"{field}[{index}]")

    def messages(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self._messages)

    def _read(self, item: Item, field: str) -> None:
        match item.param:
            case MessageItem(role, content):
                if role == "user":
                    self._say("user", content_parts(content, self._media, f"{field}.content"))
                elif role == "assistant":
                    self._assistant().add_text("".join(content_texts(content, f"{field}.content")))
                else:
                    self._instruct(item, content_texts(content, f"{field}.content"))
            case ReasoningItem():
                self._assistant().reasoning.append(_reasoning(item.param, field))
            case FunctionCallItem(call_id, name, arguments):
                self._call(ToolCall(call_id, name, arguments or "{}"), field)
            case CustomCallItem(call_id, name, text):
                self._call(custom_call(call_id, name, text), field)
            case CallOutputItem(call_id, output):
                self._result(call_id, content_parts(output, self._media, f"{field}.output"), field)
            case ToolsItem(tools):
                self._load(parse_tools(tools, f"{field}.tools"), field)
            case HostedItem():
                self._hosted(item, field)
            case ResolvedItem(items, replaces):
                self._read_in_place(items, replaces, field)
            case ItemReference(ident):
                raise _not_stored(ident, field)
            case CompactionItem():
                raise _not_ours(f"{field}.encrypted_content")

    def _read_in_place(self, items: Sequence[Item], replaces: bool, field: str) -> None:
        before = self.messages() if replaces else ()
        if replaces:
            self._messages.clear()
        self.read(items, field)
        # Earlier instructions still apply; those that the compaction repeats must not appear twice.
        said = {message for message in self._messages if message.role == "system"}
        self._messages[:0] = [m for m in before if m.role == "system" and m not in said]

    def _say(self, role: Role, parts: tuple[ContentPart, ...]) -> None:
        self._end_turn()
        self._messages.append(Message(role, parts))

    def _instruct(self, item: Item, texts: Sequence[str]) -> None:
        self._end_turn()
        is_note = item.raw.get(NOTE) is True
        self._messages.append(Message("system", tuple(map(TextPart, texts)), is_note=is_note))

    def _assistant(self) -> _Turn:
        if self._turn is None:
            self._turn = _Turn()
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._messages.append(self._turn.message())
            self._turn = None

    def _call(self, call: ToolCall, field: str) -> None:
        for name, value in (("call_id", call.id), ("name", call.name)):
            if not value:
                raise missing(f"{field}.{name}")
        self._arguments.check(call.arguments, f"{field}.arguments")
        self._called.add(call.id)
        self._assistant().calls.append(call)

    def _result(self, call_id: str, parts: tuple[ContentPart, ...], field: str) -> None:
        if self._whole and call_id not in self._called:
            name = f"{field}.call_id"
            raise invalid(f"`{name}` is {call_id[:80]!r}, but no earlier call has that id.", name)
        self._end_turn()
        self._messages.append(Message("tool", _joined(parts), tool_call_id=call_id))

    def _load(self, tools: Sequence[Tool], field: str) -> None:
        new = [tool for tool in tools if tool.name not in self._loaded]
        self._loaded.update(tool.name for tool in new)
        if len(self._loaded) > MAX_TOOLS:
            raise invalid(f"`{field}` brings the request to more than {MAX_TOOLS} tools.", f"{field}.tools")
        if new:
            self.tools += new
            self._end_turn()
            # Definitions are no instruction: the operator's system prompt still applies.
            self._messages.append(Message("system", (TextPart(definitions(new)),), is_note=True))

    def _hosted(self, item: Item, field: str) -> None:
        for part in hosted_parts(item.raw, field, self._media):
            match part:
                case HostedCall(call):
                    self._call(call, field)
                case HostedResult(call_id, parts):
                    self._result(call_id, parts, field)


class _Turn:
    """Consecutive items of the assistant, which become one message."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []

    def add_text(self, text: str) -> None:
        """Add a text, after a blank line if no white space separates it from the one before."""
        if self.texts and text and not (self.texts[-1][-1].isspace() or text[0].isspace()):
            self.texts.append("\n\n")
        if text:
            self.texts.append(text)

    def message(self) -> Message:
        """Return the turn as one message."""
        text = "".join(self.texts)
        return Message(
            "assistant",
            (TextPart(text),) if text else (),
            reasoning="\n\n".join(filter(None, self.reasoning)) or None,
            tool_calls=tuple(self.calls),
        )


def _reasoning(item: ReasoningItem, field: str) -> str:
    """Return the reasoning that this server has encrypted, or what came in plain text.

    Another server's encrypted content cannot be verified here: such a thought is left out, with its summary.
    """
    encrypted = item.encrypted_content
    if encrypted is not None and len(encrypted) > MAX_ENCRYPTED_CONTENT:
        detail = f"`{field}.encrypted_content` has more than {MAX_ENCRYPTED_CONTENT} characters."
        raise invalid(detail, f"{field}.encrypted_content", "string_above_max_length")
    if encrypted:
        reasoning = signed_reasoning("", encrypted)
        if reasoning is None:
            add_notice(LEFT_OUT)
        return reasoning or ""
    if item.content is not None and item.content.parts:
        return "\n\n".join(content_texts(item.content, f"{field}.content"))
    return "\n\n".join(content_texts(item.summary, f"{field}.summary")) if item.summary else ""


def _not_stored(ident: str, field: str) -> ProblemError:
    detail = f"`{field}.id`: no item {ident[:80]!r} is stored here; send the item itself."
    return ProblemError(Problem(404, "item_not_found", detail, f"{field}.id"))


def _not_ours(field: str) -> ProblemError:
    detail = f"`{field}` was not encrypted by this server, or was changed: send it back as it came."
    return invalid(detail, field, "invalid_encrypted_content")


def _joined(parts: tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
    """Merge content that is all text into one text part."""
    if not all(isinstance(part, TextPart) for part in parts):
        return parts
    return (TextPart("".join(part.text for part in parts if isinstance(part, TextPart))),)
