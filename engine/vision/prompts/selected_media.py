"""Selection of the media of a conversation that the model sees, with text notes in place of the rest."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.adapters.image_ids.image_numbers import last_turn
from greenroom.engine.media.images.limits import MEGABYTE, ImageLimits
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    media_of,
)
from greenroom.schemas.problems import invalid
from greenroom.schemas.settings.images import ImageHistory

NOT_SHOWN = TextPart("[An earlier image that is not shown again]")
"""Text that replaces a dropped image."""
RECORDING = TextPart("[Recording]")
DOCUMENT_NOT_SHOWN = TextPart("[An earlier document that is not shown again]")


def select_media(
    messages: Sequence[Message], history: ImageHistory, limits: ImageLimits, *, takes_audio: bool = False
) -> tuple[Message, ...]:
    """Return the conversation with at most as many images and recordings as the limits allow.

    With `all` the newest ones are kept. The oldest are dropped several at a time, so that most prompts share
    a prefix with the one before. With `last` a user's message with images is answered by itself:
    of earlier messages only system messages remain; otherwise earlier messages lose
    their images.

    Args:
        takes_audio: True to keep recordings.

    Raises:
        ProblemError: 400: the current turn has too many, or a recording for a model that takes no audio.
    """
    if not takes_audio:
        messages = _without_sounds(messages)
    if history == "last":
        messages = _last_alone(messages)
    for kind, words, note in ((ImagePart, "images", NOT_SHOWN), (AudioPart, "recordings", RECORDING)):
        messages = _newest(messages, kind, words, note, limits)
    return tuple(messages)


def _newest(
    messages: Sequence[Message], kind: type, words: str, note: TextPart, limits: ImageLimits
) -> Sequence[Message]:
    """Return the messages with the newest parts of one kind, and a note for each dropped one."""
    most = limits.images
    new = [part for message in last_turn(messages) for part in message.content if isinstance(part, kind)]
    if len(new) > most:
        param = getattr(new[most], "param", None) or "messages"
        reason = f"a request may show {most} (setting images_max_count)"
        if limits.single:
            reason = "this model takes one at a time"
        detail = f"There are {len(new)} {words}, but {reason}."
        raise invalid(detail, param, f"too_many_{words}")
    count = sum(isinstance(part, kind) for message in messages for part in message.content)
    step = max(1, most // 2)
    excess = -(-max(0, count - most) // step) * step
    return _without_first(messages, kind, note, min(excess, count - len(new)))


def check_sizes(messages: Sequence[Message], limits: ImageLimits) -> None:
    """Reject images, documents and recordings whose files are too large in total.

    Raises:
        ProblemError: 400 that names the first part over the limit.
    """
    total = 0
    for part in media_of(messages):
        total += len(part.data)
        if total > limits.bytes_together:
            most = limits.bytes_together // MEGABYTE
            detail = f"Images, documents and recordings have more than {most} MB together."
            raise invalid(detail, part.param or "messages", "image_too_large")


def _without_sounds(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with a note for each recording; reject recordings in the last turn."""
    for part in media_of(last_turn(messages)):
        if isinstance(part, AudioPart):
            named = f"`{part.param}`" if part.param else "The last message"
            detail = f"{named} is a recording, but this is a model for text and images: it does not hear."
            raise invalid(detail, part.param or "messages", "unsupported_content")
    return [
        attrs.evolve(
            message,
            content=tuple(RECORDING if isinstance(part, AudioPart) else part for part in message.content),
        )
        for message in messages
    ]


def _last_alone(messages: Sequence[Message]) -> Sequence[Message]:
    asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    if any(not isinstance(part, AudioPart) for part in messages[asked].media):
        system = (message for message in messages[:asked] if message.role == "system")
        return (*system, *messages[asked:])
    before = [_without_images(message) for message in messages[:asked]]
    return (*before, *messages[asked:])


def _without_images(message: Message) -> Message:
    parts: list[ContentPart] = []
    for part in message.content:
        match part:
            case ImagePart():
                parts.append(NOT_SHOWN)
            case DocumentPart():
                parts.append(DOCUMENT_NOT_SHOWN)
            case _:
                parts.append(part)
    return attrs.evolve(message, content=tuple(parts))


def _without_first(messages: Sequence[Message], kind: type, note: TextPart, count: int) -> Sequence[Message]:
    """Return the messages with the first `count` parts of a kind replaced by a note."""
    if not count:
        return messages
    left: list[Message] = []
    for message in messages:
        parts: list[ContentPart] = []
        for part in message.content:
            hidden = count > 0 and isinstance(part, kind)
            count -= hidden
            parts.append(note if hidden else part)
        left.append(attrs.evolve(message, content=tuple(parts)))
    return left
