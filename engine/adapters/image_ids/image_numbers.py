"""Which number each image of a conversation has, found anew in every request from its history alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from greenroom.engine.adapters.image_ids.filename_table import NamedImage
from greenroom.schemas.file_formats import image_format
from greenroom.schemas.messages import ImagePart, Message

_HASH_DIGITS = 8
_OWN_NAME = re.compile(rf"image_([0-9a-f]{{{_HASH_DIGITS}}})(?:\..*)?")


class ImageNumbers:
    """The numbers of one conversation's images: those that tables name, then the others as they first appear.

    Equal content has one number, wherever it is sent again.

    Args:
        named: The rows of all tables in the history, in order; the first that names an image holds.
    """

    def __init__(self, messages: Iterable[Message], named: Iterable[NamedImage] = ()) -> None:
        self._names: dict[str, NamedImage] = {}
        numbers: set[int] = set()
        for row in named:
            if row.number not in numbers and _content(row.name) not in self._names:
                numbers.add(row.number)
                self._names[_content(row.name)] = row
        last = max(numbers, default=0)
        for image in images_of(messages):
            name = image_name(image)
            if _content(name) not in self._names:
                last += 1
                self._names[_content(name)] = NamedImage(last, name)

    def of(self, image: ImagePart) -> NamedImage:
        """Return the number of an image of the conversation, and its name."""
        return self._names[_content(image_name(image))]

    def named(self, row: NamedImage) -> NamedImage:
        """Return the image that a row of a table names, as the first one that did so has it."""
        return self._names.get(_content(row.name), row)


def images_of(messages: Iterable[Message]) -> Iterable[ImagePart]:
    """Return the images of messages, in order."""
    return (part for message in messages for part in message.content if isinstance(part, ImagePart))


def image_name(image: ImagePart) -> str:
    """Return the name that an image has by its content."""
    return f"image_{image.digest.hex()[:_HASH_DIGITS]}.{image_format(image.data) or 'bin'}"


def last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return what was said since the assistant last said something."""
    behind = next((i for i in range(len(messages), 0, -1) if messages[i - 1].role == "assistant"), 0)
    return messages[behind:]


def _content(name: str) -> str:
    """Return what tells images apart in tables: the hash, whatever the file was called after it."""
    own = _OWN_NAME.fullmatch(name)
    return own[1] if own is not None else name
