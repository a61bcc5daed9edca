"""Protocol-independent conversations: messages, their parts, tools and tool calls."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

from greenroom.schemas.problems import ProblemError, invalid

Role = Literal["system", "user", "assistant", "tool"]
"""The role of a message; request parsing maps `developer` to `system` (reference: OpenAI chat, roles)."""

MAX_MESSAGES = 10_000
"""Maximum number of messages in a conversation; agents send about two thousand."""
MAX_PARTS = 10_000
"""Maximum number of parts in a message."""
MAX_CALLS = 1_024
"""Maximum number of tool calls in a message."""
MAX_TOOLS = 2_048
"""Maximum number of tools in a request; agents send some hundreds."""

JsonObject = Mapping[str, Any]
"""A decoded JSON object."""


@attrs.frozen
class TextPart:
    text: str


ImageDetail = Literal["auto", "low", "high", "original"]
"""The resolution hint of an image, in OpenAI's terms."""


@attrs.frozen
class ImagePart:
    """An encoded image in a message; it is decoded when the prompt is prepared.

    Args:
        data: Bytes of the file (JPEG, PNG, …); empty until `url` has been fetched.
        url: Address from which the file is fetched.
        param: Request field, for errors.
    """

    data: bytes = attrs.field(default=b"", repr=False)
    url: str | None = None
    detail: ImageDetail = "auto"
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 digest of the file, which identifies equal images."""
        return hashlib.sha256(self.data).digest()


@attrs.frozen
class DocumentPart:
    """A PDF document whose pages are shown to the model as images.

    Args:
        data: Bytes of the file; empty until `url` has been fetched.
        url: Address from which the file is fetched.
        name: File name, if the client sent one.
        param: Request field, for errors.
    """

    data: bytes = attrs.field(default=b"", repr=False)
    url: str | None = None
    name: str | None = None
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)


@attrs.frozen
class AudioPart:
    """Audio in a message.

    Args:
        data: Bytes of the file, in a container that can be decoded (WAV, MP3, …).
        param: Request field, for errors.
    """

    data: bytes = attrs.field(repr=False)
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)


MediaPart = ImagePart | DocumentPart | AudioPart
"""A file inside a message."""

ContentPart = TextPart | MediaPart
"""A part of a message's content."""


@attrs.frozen
class ToolCall:
    """A tool call made by the assistant.

    Args:
        id: Call id on the wire (`call_…`); adapters convert it for templates that need another form.
        arguments: JSON text of an object, exactly as generated or as found in the client's history.
    """

    id: str
    name: str
    arguments: str


@attrs.frozen
class TextInput:
    """The input format of a tool that takes a single text instead of arguments.

    Args:
        syntax: `text` for any text; otherwise the language of `definition`, which the whole text must match:
            a regular expression, or a Lark grammar in llguidance's dialect.
        definition: The regular expression or grammar.
    """

    syntax: Literal["text", "regex", "lark"] = "text"
    definition: str = ""


@attrs.frozen
class Tool:
    """A function that the model may call.

    Args:
        parameters: JSON Schema of the arguments object.
        strict: True if the arguments must validate against `parameters`.
        described: True if the prompt's tool section describes the tool; False if the conversation itself
            does, so that a tool added later leaves the beginning of the prompt unchanged.
        input: Input format of a tool that takes one text, its only argument
            `greenroom.schemas.messages.messages.ARGUMENT` (made by `text_tool`); None for ordinary tools.
        param: Request field of `parameters`, or of the definition of `input`, for errors.
        held: True if automatic calls are held to `parameters` as far as a grammar can, and never refused.
    """

    name: str
    description: str = ""
    parameters: JsonObject = attrs.field(factory=dict)
    strict: bool = False
    described: bool = True
    input: TextInput | None = None
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)
    held: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class ToolChoice:
    """The choice of tools: optional, required or forbidden, or one named tool.

    Args:
        mode: Mode of the choice; `named` forces the function `name`.
        allowed: Names of the tools that may be called, among those described to the model; None for all.
    """

    mode: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None

    def callable(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        if self.mode == "none":
            return ()
        if self.mode != "named" and self.allowed is None:
            return tools
        names = {self.name} if self.mode == "named" else set(self.allowed or ())
        return tuple(tool for tool in tools if tool.name in names)


@attrs.frozen
class Message:
    """A message of a conversation, with every field that a chat template may use.

    Args:
        content: Content parts in order; empty for an assistant turn that only calls tools.
        reasoning: Reasoning before an assistant's answer, if the client sent it back.
        tool_call_id: Id of the call that a `tool` message answers.
        is_note: True if the server has written it, so that the operator's system prompt still applies.
    """

    role: Role
    content: tuple[ContentPart, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_note: bool = False

    @property
    def text(self) -> str:
        """The text parts, joined without a separator."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def media(self) -> tuple[MediaPart, ...]:
        return tuple(part for part in self.content if isinstance(part, MediaPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        return tuple(part for part in self.content if isinstance(part, ImagePart))


def media_of(messages: Iterable[Message]) -> Iterator[MediaPart]:
    return (part for message in messages for part in message.media)


def images_of(messages: Iterable[Message]) -> Iterator[ImagePart]:
    return (image for message in messages for image in message.images)


# Tools that take one text, such as a patch or a query, presented to models as one-argument functions.
#
# OpenAI calls them custom tools.

ARGUMENT = "input"
"""The name of the argument that holds the text."""

_KINDS = {"regex": "regular expression (syntax of Rust)", "lark": "Lark grammar"}


def text_tool(name: str, description: str, takes: TextInput, param: str) -> Tool:
    """Return a tool with one text argument; its description states the text's required format.

    Args:
        param: Request field of the input's definition, for errors.
    """
    text = {"type": "string", "description": "The whole input, as it is: no JSON, no quotes around it."}
    parameters = {
        "type": "object",
        "properties": {ARGUMENT: text},
        "required": [ARGUMENT],
        "additionalProperties": False,
    }
    if kind := _KINDS.get(takes.syntax):
        rule = f"`{ARGUMENT}` has to match this {kind}:\n{takes.definition}"
        description = f"{description}\n\n{rule}" if description else rule
    return Tool(name, description, parameters, strict=bool(kind), input=takes, param=param)


def arguments_of(text: str) -> str:
    return json.dumps({ARGUMENT: text}, ensure_ascii=False)


@attrs.frozen
class ControlToken:
    """A control token of a vocabulary.

    Args:
        text: Text of the token.
        silent: True for special tokens and tokens of the form `<|…|>`, which do not occur in ordinary text.
    """

    text: str
    silent: bool


Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]

EFFORTS: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
"""All efforts, in ascending order. Clients also send `none`, which turns reasoning off."""


def effort_named(value: object) -> Effort | None:
    """Return the effort with this name; None if there is no such effort."""
    return next((effort for effort in EFFORTS if effort == value), None)


@attrs.frozen
class ReasoningSettings:
    """The client's reasoning settings; None leaves a setting to the model's template.

    Args:
        enabled: True to reason, False not to.
        preserved: True to show the model its reasoning from earlier turns.
    """

    enabled: bool | None = None
    effort: Effort | None = None
    preserved: bool | None = None


# Search for halves of surrogate pairs, which Python's strings may hold but no Unicode encoding can express.
#
# Requests over HTTP have none: the decoder of JSON replaces them. A program that uses Greenroom as a library
# may pass any string, such as one that it cut in the middle of an emoji.

_LONE = re.compile("[\ud800-\udfff]")


def check_text(field: str, value: Any) -> None:
    """Check that all strings in a value can be encoded.

    Args:
        field: Name of the value, for errors.
        value: A string, a message, or a collection of these, nested to any depth.

    Raises:
        ProblemError: A string holds half of a surrogate pair; the problem names its field.
    """
    pending: list[tuple[str, Any]] = [(field, value)]
    while pending:
        name, found = pending.pop()
        match found:
            case str():
                if not found.isascii() and _LONE.search(found):
                    raise lone_surrogate(name)
            case Mapping():
                pending += ((f"the keys of {name}", key) for key in found)
                pending += ((f"{name}[{key!r}]", inner) for key, inner in found.items())
            case list() | tuple():
                pending += (
                    (f"{name}[{index}]", inner)
                    for index, inner in enumerate(found)
                    if not isinstance(inner, int | float)  # as many as a million token ids
                )
            case _ if attrs.has(type(found)):
                for attribute in attrs.fields(type(found)):
                    inner = getattr(found, attribute.name)
                    if not isinstance(inner, bytes | int | float):
                        pending.append((f"{name}.{attribute.name}" if name else attribute.name, inner))


def lone_surrogate(field: str) -> ProblemError:
    return invalid(f"`{field:.200}` contains half of a surrogate pair, which is not valid text.", field)
