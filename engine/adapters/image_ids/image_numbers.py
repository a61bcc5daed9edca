"""Numbers of a conversation's images, derived in every request from its history alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from greenroom.engine.adapters.image_ids.filename_table import LARGEST_NUMBER, NamedImage
from greenroom.schemas.file_formats import image_format
from greenroom.schemas.messages.messages import ImagePart, Message, images_of

_HASH_DIGITS = 8
_OWN_NAME = re.compile(r"image_([0-9a-f]{8,64})(?:\..*)?")


class ImageNumbers:
    """Image numbers of one conversation: those in tables, then others in order of first appearance.

    Equal content always has the same number, and no other image has it, whatever tables say.

    Args:
        messages: Messages of the conversation.
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
        """Return the number and name of an image in the conversation."""
        return self._images[image.digest]

    def named(self, row: NamedImage) -> NamedImage | None:
        """Return the image that a table row names; None if the row gives it another image's number."""
        return self._names.get(_content(row.name))


def _free_numbers(taken: Collection[int]) -> Iterator[int]:
    """Yield free numbers: those above all others, as far as tables can hold them, then the gaps."""
    highest = max(taken, default=0)
    yield from range(highest + 1, LARGEST_NUMBER + 1)
    yield from (number for number in range(1, highest) if number not in taken)
    yield from itertools.count(LARGEST_NUMBER + 1)


def image_name(image: ImagePart, digits: int = _HASH_DIGITS) -> str:
    """Return an image's name, made from the first `digits` digits of its content's hash."""
    return f"image_{image.digest.hex()[:digits]}.{image_format(image.data) or 'bin'}"


def last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages since the assistant's last message."""
    behind = next((i for i in range(len(messages), 0, -1) if messages[i - 1].role == "assistant"), 0)
    return messages[behind:]


def _content(name: str) -> str:
    """Return the key of an image in tables: its hash, or another name as it is."""
    own = _OWN_NAME.fullmatch(name)
    return own[1] if own is not None else name
