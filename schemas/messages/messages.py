"""Protocol-independent conversations: messages, their parts, tools and tool calls."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

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
    """Plain text inside a message."""

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
        name: Name of the function.
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
            `greenroom.schemas.messages.text_tools.ARGUMENT` (made by `text_tool`); None for ordinary tools.
        param: Request field of `parameters`, or of the definition of `input`, for errors.
    """

    name: str
    description: str = ""
    parameters: JsonObject = attrs.field(factory=dict)
    strict: bool = False
    described: bool = True
    input: TextInput | None = None
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)


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
        """Return the tools that may be called."""
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
        tool_calls: Tool calls of an assistant turn.
        tool_call_id: Id of the call that a `tool` message answers.
        name: Name of the participant or of the tool.
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
        """The message's files, in order."""
        return tuple(part for part in self.content if isinstance(part, MediaPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The message's images, in order."""
        return tuple(part for part in self.content if isinstance(part, ImagePart))


def media_of(messages: Iterable[Message]) -> Iterator[MediaPart]:
    """Yield the files of a conversation, in order."""
    return (part for message in messages for part in message.media)


def images_of(messages: Iterable[Message]) -> Iterator[ImagePart]:
    """Yield the images of a conversation, in order."""
    return (image for message in messages for image in message.images)
