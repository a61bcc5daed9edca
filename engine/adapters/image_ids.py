"""The table of image numbers and file names at the end of an answer.

Clients may drop images from a conversation once they are described; the table stays in the history and
preserves their numbers. The file name contains the content's hash: `image_5733332c.jpeg`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from greenroom.schemas.file_formats import image_format
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

MARKER = "<!-- greenroom:filenames -->"
_MARKERS = re.compile(r"<!--\s*(?:greenroom|mlxk):filenames\s*-->", re.IGNORECASE)
_HEADER = re.compile(r"\|\s*Image\s*\|\s*Filename\s*\|", re.IGNORECASE)
_RULE = re.compile(r"\|[-:| ]*-[-:| ]*\|")
_ROW = re.compile(r"\|\s*([1-9]\d{0,5})\s*\|\s*([^|\s][^|]{0,254}?)\s*\|")
_OWN_NAME = re.compile(r"image_[0-9a-f]{8,64}(?:\.[A-Za-z0-9]{1,8})?")
_LONGEST_LINE = 512  # Limit on the characters of a table line; the expressions backtrack in longer ones
LARGEST_NUMBER = 999_999
"""Largest image number; a row with a larger one is text. No request can hold so many images."""
_LINES_BEGIN = ("|", "<")
_HINTS = ("filename", "Filename", "image_")


@attrs.frozen
class NamedImage:
    """A row of the table."""

    number: int
    name: str


def filename_table(images: Iterable[NamedImage]) -> str:
    rows = [f"| {image.number} | {image.name} |" for image in images]
    if not rows:
        return ""
    return "\n\n" + "\n".join((MARKER, "| Image | Filename |", "|-------|----------|", *rows))


def split_tables(text: str) -> tuple[str, Sequence[NamedImage]]:
    """Return an answer without its appended tables, and the rows of these tables.

    A table without a marker needs the right header; a row without a header needs a name made from a hash.
    Rows of the last table come first: that one was appended, while earlier ones may be the model's.
    """
    if "|" not in text or not any(hint in text for hint in _HINTS):
        return text, ()
    kept: list[str] = []
    tables: list[list[NamedImage]] = []
    inside = goes_on = False
    for line in text.split("\n"):
        stripped = line.strip() if len(line) <= _LONGEST_LINE else ""
        if stripped[:1] not in _LINES_BEGIN:
            inside = goes_on = False
            kept.append(line)
        elif _MARKERS.fullmatch(stripped) or _HEADER.fullmatch(stripped):
            if not inside and kept and not kept[-1].strip():
                kept.pop()
            inside = True
        elif inside and _RULE.fullmatch(stripped):
            continue
        elif (row := _ROW.fullmatch(stripped)) and (inside or _OWN_NAME.fullmatch(row[2])):
            if not inside and not tables and kept and not kept[-1].strip():
                kept.pop()
            if not goes_on:
                tables.append([])
            tables[-1].append(NamedImage(int(row[1]), row[2]))
            goes_on = True
        else:
            inside = goes_on = False
            kept.append(line)
    rows = tuple(row for table in reversed(tables) for row in table)
    return ("\n".join(kept), rows) if rows else (text, ())


_HASH_DIGITS = 8
_HASHED_NAME = re.compile(r"image_([0-9a-f]{8,64})(?:\..*)?")


class ImageNumbers:
    """Numbers the images of one conversation: as tables in it say, then in order of first appearance.

    Equal content always has the same number, and no other image has it, whatever tables say.

    Args:
        named: Rows of all tables in the history; the first row for an image or a number wins.
    """

    def __init__(self, messages: Iterable[Message], named: Iterable[NamedImage] = ()) -> None:
        self._names: dict[str, NamedImage] = {}
        self._images: dict[bytes, NamedImage] = {}
        taken: set[int] = set()
        for row in named:
            if row.number not in taken and _content(row.name) not in self._names:
                taken.add(row.number)
                self._names[_content(row.name)] = row
        free = _free_numbers(taken)
        shown: set[str] = set()
        for image in images_of(messages):
            if image.digest in self._images:
                continue
            name = image_name(image)
            if _content(name) in shown or image.digest.hex() in self._names:
                name = image_name(image, digits=len(image.digest.hex()))  # The hash prefix collides.
            content = _content(name)
            shown.add(content)
            if content not in self._names:
                self._names[content] = NamedImage(next(free), name)
            self._images[image.digest] = self._names[content]

    def of(self, image: ImagePart) -> NamedImage:
        return self._images[image.digest]

    def named(self, row: NamedImage) -> NamedImage | None:
        return self._names.get(_content(row.name))


def _free_numbers(taken: Collection[int]) -> Iterator[int]:
    """Yield free numbers: those above all others, as far as tables can hold them, then the gaps."""
    highest = max(taken, default=0)
    yield from range(highest + 1, LARGEST_NUMBER + 1)
    yield from (number for number in range(1, highest) if number not in taken)
    yield from itertools.count(LARGEST_NUMBER + 1)


def image_name(image: ImagePart, digits: int = _HASH_DIGITS) -> str:
    return f"image_{image.digest.hex()[:digits]}.{image_format(image.data) or 'bin'}"


def last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    behind = next((i for i in range(len(messages), 0, -1) if messages[i - 1].role == "assistant"), 0)
    return messages[behind:]


def _content(name: str) -> str:
    """Return the key of an image in tables: its hash, or another name as it is."""
    own = _HASHED_NAME.fullmatch(name)
    return own[1] if own is not None else name


@attrs.frozen
class ReadImages:
    """A conversation with images prepared for one model. `messages`: messages without tables; for a text
    model, without media.
    """

    messages: tuple[Message, ...]
    appendix: str = ""


def read_images(messages: tuple[Message, ...], model: str, *, takes_images: bool, ids: bool) -> ReadImages:
    """Return a conversation whose images have numbers.

    With `ids` off, a vision model reads the conversation unchanged, and a text model refuses images in the
    user's last turn; images of earlier turns and in tool results are replaced with text.

    Args:
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
    joined: list[ContentPart] = []
    for part in parts:
        before = joined[-1] if joined else None
        if isinstance(part, TextPart) and isinstance(before, TextPart):
            parted = not before.text or before.text[-1:].isspace() or part.text[:1].isspace()
            joined[-1] = TextPart(before.text + ("" if parted else "\n") + part.text)
        else:
            joined.append(part)
    return tuple(joined)
