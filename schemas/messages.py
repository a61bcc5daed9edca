"""A conversation in no protocol's dialect: messages, their parts, tools and tool calls."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

Role = Literal["system", "user", "assistant", "tool"]
"""`developer` is mapped to `system` when a request is parsed (reference: OpenAI chat, roles)."""

MAX_MESSAGES = 10_000
"""Of one conversation; agents send some two thousand."""
MAX_PARTS = 10_000
"""Of one message."""
MAX_CALLS = 1_024
"""Of one message."""
MAX_TOOLS = 2_048
"""On offer; agents send some hundreds."""

JsonObject = Mapping[str, Any]
"""A decoded JSON object; its values are whatever JSON can hold."""


@attrs.frozen
class TextPart:
    """Plain text inside a message."""

    text: str


ImageDetail = Literal["auto", "low", "high", "original"]
"""How closely an image is to be looked at, as OpenAI's clients say it."""


@attrs.frozen
class ImagePart:
    """An image inside a message, as its client encoded it: it is decoded where the prompt is prepared.

    Args:
        data: The file's bytes (JPEG, PNG, …); empty while `url` has not been fetched.
        url: Where it is to be fetched.
        param: What the client calls it, for errors.
    """

    data: bytes = attrs.field(default=b"", repr=False)
    url: str | None = None
    detail: ImageDetail = "auto"
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)

    @functools.cached_property
    def digest(self) -> bytes:
        """SHA-256 of the file, by which equal images are known."""
        return hashlib.sha256(self.data).digest()


@attrs.frozen
class DocumentPart:
    """A document whose pages are shown to the model as images: a PDF.

    Args:
        data: The file's bytes; empty while `url` has not been fetched.
        url: Where it is to be fetched.
        name: Of the file, if its client says.
        param: What the client calls it, for errors.
    """

    data: bytes = attrs.field(default=b"", repr=False)
    url: str | None = None
    name: str | None = None
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)


@attrs.frozen
class AudioPart:
    """Spoken or other sound inside a message.

    Args:
        data: The file's bytes, in a container that can be decoded (WAV, MP3, …).
        param: What the client calls it, for errors.
    """

    data: bytes = attrs.field(repr=False)
    param: str | None = attrs.field(default=None, kw_only=True, eq=False)


MediaPart = ImagePart | DocumentPart | AudioPart
"""A file inside a message."""

ContentPart = TextPart | MediaPart
"""Everything a message can hold."""


@attrs.frozen
class ToolCall:
    """A call that the assistant made.

    Args:
        id: The id on the wire (`call_…`); adapters map it where a template is pickier.
        name: Name of the function.
        arguments: JSON text of one object, exactly as the model (or the client's history) wrote it.
    """

    id: str
    name: str
    arguments: str


@attrs.frozen
class TextInput:
    """What a tool takes that is called with one text, in place of arguments.

    Args:
        syntax: `text` takes any; else what `definition` is written in: a regular expression, or a Lark
            grammar in llguidance's dialect, which the whole text has to match.
        definition: The expression or grammar.
    """

    syntax: Literal["text", "regex", "lark"] = "text"
    definition: str = ""


@attrs.frozen
class Tool:
    """A function that the model may call.

    Args:
        parameters: JSON Schema of the arguments.
        strict: The arguments must validate against `parameters`.
        described: The prompt begins with its description; False if the conversation itself holds one, so that
            a tool which joins later leaves the beginning of the prompt as it was.
        input: It takes one text: the only argument, `greenroom.schemas.text_tools.ARGUMENT` (`text_tool`
            makes such tools).
        param: What the client calls `parameters`, or the definition of `input`, for errors.
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
    """Whether tools may, must or must not be called.

    Args:
        mode: `named` forces the function `name`.
        allowed: The tools that may be called, of all that are described to the model; None for all.
    """

    mode: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None

    def callable(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Return those of the tools that may be called."""
        if self.mode == "none":
            return ()
        if self.mode != "named" and self.allowed is None:
            return tools
        names = {self.name} if self.mode == "named" else set(self.allowed or ())
        return tuple(tool for tool in tools if tool.name in names)


@attrs.frozen
class Message:
    """One message of a conversation, with everything that must reach the template.

    Args:
        content: Parts in order; empty for an assistant turn that only calls tools.
        reasoning: The thought that came before an assistant's answer, if the client sent it back.
        tool_calls: Calls of an assistant turn.
        tool_call_id: Which call a `tool` message answers.
        name: Name of the participant or of the tool.
    """

    role: Role
    content: tuple[ContentPart, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """All text parts, joined without a separator."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """The files, in order."""
        return tuple(part for part in self.content if isinstance(part, MediaPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Those of the files that are images."""
        return tuple(part for part in self.content if isinstance(part, ImagePart))


def media_of(messages: Iterable[Message]) -> Iterator[MediaPart]:
    """Yield the files of a conversation, in order."""
    return (part for message in messages for part in message.media)


def images_of(messages: Iterable[Message]) -> Iterator[ImagePart]:
    """Yield the images of a conversation, in order."""
    return (image for message in messages for image in message.images)
