"""Images in a conversation as the model reads them: with numbers, or replaced with text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from greenroom.engine.adapters.image_ids.filename_table import NamedImage, filename_table, split_tables
from greenroom.engine.adapters.image_ids.image_numbers import ImageNumbers, last_turn
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    MediaPart,
    Message,
    TextPart,
    images_of,
    media_of,
)
from greenroom.schemas.problems import ProblemError, invalid, not_fetched


@attrs.frozen
class ReadImages:
    """A conversation with images prepared for one model.

    Args:
        messages: Messages without tables; for a text model, without media.
        appendix: Text to append to the answer.
    """

    messages: tuple[Message, ...]
    appendix: str = ""


def read_images(messages: tuple[Message, ...], model: str, *, takes_images: bool, ids: bool) -> ReadImages:
    """Return a conversation whose images have numbers.

    With `ids` off, a vision model reads the conversation unchanged, and a text model refuses images in the
    user's last turn; images of earlier turns and in tool results are replaced with text.

    Args:
        messages: Messages of the conversation.
        model: Name of the model, for errors.
        takes_images: True if the model takes images.
        ids: True if numbers are read from tables and shown to the model, and the answer gets a table.

    Raises:
        ProblemError: 400 that names an image, document or recording that the model cannot take.
    """
    media = tuple(media_of(messages))
    if not media and not ids:
        return ReadImages(messages)
    _check_fetched(media)
    if not takes_images:
        _refuse(messages, model, ids=ids)
    if takes_images and not ids:
        return ReadImages(messages)
    tables = _Tables(messages) if ids else None
    numbers = ImageNumbers(messages, tables.rows if tables is not None else ())
    read = tables.complete(numbers) if tables is not None else messages
    shown = tuple(_shown(message, numbers, takes_images=takes_images) for message in read)
    return ReadImages(shown, tables.appendix(messages, numbers) if tables is not None else "")


class _Tables:
    """The tables of image numbers in a conversation's answers, and its messages without these tables."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages: list[Message] = []
        self._by_message: list[Sequence[NamedImage]] = []
        for message in messages:
            text, rows = split_tables(message.text) if message.role == "assistant" else ("", ())
            self._messages.append(attrs.evolve(message, content=(TextPart(text),)) if rows else message)
            self._by_message.append(rows)
        self.rows = [row for rows in self._by_message for row in rows]

    def complete(self, numbers: ImageNumbers) -> tuple[Message, ...]:
        """Return the conversation with a text placeholder for each image that the client has dropped."""
        completed = list(self._messages)
        seen: set[int] = set()
        question: int | None = None
        for index, message in enumerate(self._messages):
            seen.update(numbers.of(image).number for image in message.images)
            if message.role == "user":
                question = index
            named = map(numbers.named, self._by_message[index])
            dropped = [image for image in named if image is not None and image.number not in seen]
            if dropped and question is not None:
                words = "\n".join(dict.fromkeys(map(_placeholder, dropped)))
                asked = completed[question]
                completed[question] = attrs.evolve(asked, content=_joined([TextPart(words), *asked.content]))
                seen.update(image.number for image in dropped)
        return tuple(completed)

    def appendix(self, messages: Sequence[Message], numbers: ImageNumbers) -> str:
        """Return a table of the images in the last turn and of those that no table names yet."""
        named = {numbers.named(row) for row in self.rows}
        new = {numbers.of(image) for image in images_of(messages)} - named
        new.update(numbers.of(image) for image in images_of(last_turn(messages)))
        return filename_table(sorted(new, key=lambda image: image.number))


def _check_fetched(media: Iterable[MediaPart]) -> None:
    for part in media:
        if not isinstance(part, AudioPart) and not part.data:
            raise not_fetched(part.param)


def _refuse(messages: Sequence[Message], model: str, *, ids: bool) -> None:
    """Refuse media in the user's last turn; with `ids`, images are accepted as numbers in text."""
    for part in media_of(message for message in last_turn(messages) if message.role == "user"):
        if not (ids and isinstance(part, ImagePart)):
            raise _unseen(part, model)


def _unseen(part: MediaPart, model: str) -> ProblemError:
    what = {ImagePart: "an image", DocumentPart: "a document", AudioPart: "a recording"}[type(part)]
    media = "audio" if isinstance(part, AudioPart) else "images"
    subject = f"`{part.param}` is" if part.param else "The last message holds"
    detail = f"{subject} {what}, but '{model}' is a text model: it takes no {media}."
    return invalid(detail, part.param, "unsupported_content")


def _shown(message: Message, numbers: ImageNumbers, *, takes_images: bool) -> Message:
    """Return a message with image numbers before its images or instead of them."""
    if not message.media:
        return message
    parts: list[ContentPart] = []
    for part in message.content:
        match part:
            case ImagePart():
                parts.append(TextPart(_placeholder(numbers.of(part))))
                parts += [part] if takes_images else []
            case DocumentPart(name=name) if not takes_images:
                parts.append(TextPart(f"[Document: {name}]" if name else "[Document]"))
            case AudioPart() if not takes_images:
                parts.append(TextPart("[Recording]"))
            case _:
                parts.append(part)
    return attrs.evolve(message, content=_joined(parts))


def _placeholder(image: NamedImage) -> str:
    return f"[Image {image.number}: {image.name}]"


def _joined(parts: Iterable[ContentPart]) -> tuple[ContentPart, ...]:
    """Return the parts with neighboring texts joined, on separate lines."""
    joined: list[ContentPart] = []
    for part in parts:
        before = joined[-1] if joined else None
        if isinstance(part, TextPart) and isinstance(before, TextPart):
            parted = not before.text or before.text[-1:].isspace() or part.text[:1].isspace()
            joined[-1] = TextPart(before.text + ("" if parted else "\n") + part.text)
        else:
            joined.append(part)
    return tuple(joined)
