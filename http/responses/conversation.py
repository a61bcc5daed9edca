"""Conversion of items to protocol-independent messages: groups items, and matches results with calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from greenroom.actors.tools.turn import answers_to
from greenroom.http.answering.current_request import add_notice
from greenroom.http.answering.explanation_body import LEFT_OUT, signed_reasoning
from greenroom.http.answering.tools import ArgumentCheck, custom_call
from greenroom.http.media.media_reader import MediaReader, is_data_url, unknown_file
from greenroom.http.responses.mcp_items import ServerCalls
from greenroom.http.responses.tools import definitions, parse_tools
from greenroom.schemas.messages.messages import (
    MAX_TOOLS,
    ContentPart,
    JsonObject,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
)
from greenroom.schemas.problems import Problem, ProblemError, invalid, missing
from greenroom.schemas.wire.responses_items import (
    MAX_ENCRYPTED_CONTENT,
    NOTE,
    CallOutputItem,
    CompactionItem,
    Content,
    CustomCallItem,
    FunctionCallItem,
    HostedItem,
    Item,
    ItemReference,
    MessageItem,
    PartParam,
    ReasoningItem,
    ResolvedItem,
    ToolsItem,
    structure_part,
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
        self.calls = ServerCalls()
        self._arguments = ArgumentCheck()
        self._media = MediaReader()

    def read(self, items: Sequence[Item], field: str) -> None:
        """Read the next items. Raises ProblemError: 400 that names the field, 404 for an item that is not
        stored here.
        """
        for index, item in enumerate(items):
            self._proceed()
            self._read(item, f"{field}[{index}]")

    def messages(self) -> tuple[Message, ...]:
        self._end_turn()
        return answers_to(self._messages, self.calls.unanswered())

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
        match item.raw["type"]:
            case "mcp_list_tools":
                self.calls.list(item.raw)
            case "mcp_approval_request":
                call = self.calls.ask(item.raw, field)
                self._call(ToolCall(call.id, call.name, call.arguments), field)
            case "mcp_approval_response":
                if (refused := self.calls.answer(item.raw, field)) is not None:
                    self._result(refused[0], (TextPart(refused[1]),), field)
            case "mcp_call" if (asked := self.calls.made(item.raw)) is not None:
                self._result(asked, (TextPart(result_text(item.raw)),), field)
            case _:
                self._of_openai(item, field)

    def _of_openai(self, item: Item, field: str) -> None:
        for part in hosted_parts(item.raw, field, self._media):
            match part:
                case ToolCall():
                    self._call(part, field)
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


TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def content_texts(content: Content, field: str) -> list[str]:
    """Return the texts of text-only content. Raises ProblemError (400) that names a part of another type."""
    return [_text(part, f"{field}[{index}]") for index, part in enumerate(content.parts)]


def content_parts(content: Content, media: MediaReader, field: str) -> tuple[ContentPart, ...]:
    """Return content as protocol-independent parts. Raises ProblemError: 400 that names the field; 501 for a
    video.
    """
    return tuple(content_part(part, media, f"{field}[{index}]") for index, part in enumerate(content.parts))


def content_part(part: PartParam, media: MediaReader, field: str) -> ContentPart:
    """Return one protocol-independent part. Raises as `content_parts` does."""
    match part.type:
        case "input_image" | "computer_screenshot":
            return _image(part, media, field)
        case "input_file":
            return _file(part, media, field)
        case "input_audio":
            if part.input_audio is None:
                raise missing(f"{field}.input_audio")
            return media.recording(part.input_audio.data, part.input_audio.format, f"{field}.input_audio")
        case "input_video":
            detail = f"`{field}` is a video; videos are not supported. Send single frames as images."
            raise ProblemError(Problem(501, "not_implemented", detail, field))
    return TextPart(_text(part, field))


def _image(part: PartParam, media: MediaReader, field: str) -> ContentPart:
    if part.image_url is not None:
        return media.image(part.image_url, f"{field}.image_url", part.detail)
    if part.file_id is not None:
        raise unknown_file(f"{field}.file_id")
    raise missing(f"{field}.image_url")


def _file(part: PartParam, media: MediaReader, field: str) -> ContentPart:
    if part.file_data is not None:
        return media.file(part.file_data, f"{field}.file_data", part.filename)
    if part.file_url is not None:
        return media.document_at(part.file_url, f"{field}.file_url", part.filename)
    if part.file_id is not None:
        raise unknown_file(f"{field}.file_id")
    raise missing(f"{field}.file_data")


def _text(part: PartParam, field: str) -> str:
    if part.type == "refusal":
        if part.refusal is None:
            raise missing(f"{field}.refusal")
        return part.refusal
    if part.type not in TEXT_PARTS:
        kind = part.type.removeprefix("input_").replace("_", " ")[:40]
        detail = f"`{field}` is {kind!r}, which cannot stand there, or is not supported."
        raise invalid(detail, field, "unsupported_content")
    if part.text is None:
        raise missing(f"{field}.text")
    return part.text


# Items of OpenAI's hosted tools in a conversation's history.
#
# Their output is shown to the model as a call's result; content that only OpenAI's server could use is
# dropped.

SHELLS = {"local_shell_call": "local_shell", "shell_call": "shell"}


@attrs.frozen
class HostedResult:
    """The result of a tool call that represents an item."""

    call_id: str
    parts: tuple[ContentPart, ...]


def hosted_parts(item: JsonObject, field: str, media: MediaReader) -> Iterator[ToolCall | HostedResult]:
    """Yield the calls and results that represent an item; none for searches, tool lists and the like. Raises
    ProblemError: 400 that names the field.
    """
    match item["type"]:
        case "local_shell_call" | "shell_call" as kind:
            yield _call(_id(item, "call_id", field), SHELLS[kind], item.get("action"))
        case "apply_patch_call":
            yield _call(_id(item, "call_id", field), "apply_patch", item.get("operation"))
        case "local_shell_call_output" | "shell_call_output" | "apply_patch_call_output":
            yield HostedResult(_id(item, "call_id", field), (TextPart(result_text(item)),))
        case "mcp_call":
            call_id = _id(item, "id", field)
            arguments = item.get("arguments")
            name = _id(item, "name", field)
            yield ToolCall(call_id, name, arguments if isinstance(arguments, str) else "{}")
            if item.get("output") is not None or item.get("error") is not None:
                yield HostedResult(call_id, (TextPart(result_text(item)),))
        case "code_interpreter_call":
            call_id = _id(item, "id", field)
            yield _call(call_id, "code_interpreter", {"code": item.get("code")})
            yield HostedResult(call_id, _outputs(item, field, media))
        case "compaction_trigger":
            detail = f"`{field}` asks for a compaction, which `POST /v1/responses/compact` makes."
            raise invalid(detail, field, "unsupported_content")
        case "configuration_update":
            detail = f"`{field}` is not supported: set `reasoning` and `text` of the request."
            raise invalid(detail, field, "unsupported_content")
        case "computer_call" if item.get("call_id") is not None:
            yield _call(_id(item, "call_id", field), "computer", item.get("action"))
        case "computer_call_output":
            screen = _screenshot(item.get("output"), f"{field}.output", media)
            yield HostedResult(_id(item, "call_id", field), (screen,))
        case "image_generation_call" if isinstance(item.get("result"), str):
            call_id = _id(item, "id", field)
            yield _call(call_id, "image_generation", {"prompt": item.get("revised_prompt")})
            yield HostedResult(call_id, (media.encoded_image(item["result"], f"{field}.result"),))


def _call(call_id: str, name: str, arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments or {}, ensure_ascii=False))


def _id(item: JsonObject, name: str, field: str) -> str:
    value = item.get(name)
    if value is None:
        raise missing(f"{field}.{name}")
    if not isinstance(value, str) or not value:
        raise invalid(f"`{field}.{name}` must be a string that is not empty.", f"{field}.{name}")
    return value


def result_text(item: JsonObject) -> str:
    """Return the output of a call's item, or its error, as text."""
    if (error := item.get("error")) is not None:
        match error:
            case {"content": [{"text": str(text)}]}:
                return f"Error: {text}"
        return f"Error: {_value_text(error)}"
    output = item.get("output")
    return str(item.get("status") or "") if output is None else _value_text(output)


def _value_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _screenshot(output: Any, field: str, media: MediaReader) -> ContentPart:
    if not isinstance(output, dict):
        raise missing(field)
    return content_part(structure_part({"type": "computer_screenshot", **output}, field), media, field)


def _outputs(item: JsonObject, field: str, media: MediaReader) -> tuple[ContentPart, ...]:
    """Return the text output of executed code, and the images that are embedded as data URLs."""
    outputs = item.get("outputs")
    if not isinstance(outputs, list):
        return (TextPart(""),)
    pictures = {index for index, output in enumerate(outputs) if _is_picture(output)}
    text = _value_text([output for index, output in enumerate(outputs) if index not in pictures])
    images = (
        media.image(outputs[index]["url"], f"{field}.outputs[{index}].url")
        for index in sorted(pictures)
        # Other URLs point to files of the server that ran the code.
        if is_data_url(str(outputs[index].get("url")))
    )
    return (TextPart(text), *images)


def _is_picture(output: Any) -> bool:
    return isinstance(output, dict) and output.get("type") == "image"
