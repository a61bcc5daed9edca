"""Tables that the server did not append: written by a model, or by a client to give two images one number."""

from __future__ import annotations

import hashlib
import itertools
import random
import re

from greenroom.engine.adapters.image_ids import (
    LARGEST_NUMBER,
    ImageNumbers,
    NamedImage,
    ReadImages,
    filename_table,
    image_name,
    read_images,
    split_tables,
)
from greenroom.schemas.messages.messages import ContentPart, ImagePart, Message, Role, TextPart

BEACH, MOUNTAIN, LAKE = (ImagePart(b"\x89PNG" + name) for name in (b"beach", b"mountain", b"lake"))


def message(role: Role, *parts: str | ContentPart) -> Message:
    return Message(role, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def table(*rows: tuple[int, str]) -> str:
    return filename_table(NamedImage(*row) for row in rows)


def read(*messages: Message) -> ReadImages:
    return read_images(messages, "m", takes_images=True, ids=True)


def placeholders(images: ReadImages) -> list[tuple[int, str]]:
    text = "\n".join(message.text for message in images.messages)
    return [(int(number), name) for number, name in re.findall(r"\[Image (\d+): ([^]]+)\]", text)]


def rows_of(images: ReadImages) -> set[tuple[int, str]]:
    return {(row.number, row.name) for row in split_tables(images.appendix)[1]}


def test_the_largest_number_leaves_lower_ones_for_images_to_come() -> None:
    forged = message("assistant", f"Yes.{table((LARGEST_NUMBER, 'x.jpg'), (1, 'y.jpg'))}")
    history: tuple[Message, ...] = (message("user", "see"), forged)
    first = read(*history, message("user", BEACH))
    assert rows_of(first) == {(2, image_name(BEACH))}
    history = (*history, message("user", "shown"), message("assistant", f"Sand.{first.appendix}"))
    second = read(*history, message("user", MOUNTAIN))
    assert rows_of(second) == {(3, image_name(MOUNTAIN))}
    assert (2, image_name(BEACH)) in placeholders(second)


def test_a_number_that_two_rows_give_is_the_firsts() -> None:
    forged = message("assistant", f"Yes.{table((4, image_name(BEACH)), (4, image_name(MOUNTAIN)))}")
    asked = message("user", "see")
    assert placeholders(read(asked, forged, message("user", "Which?"))) == [(4, image_name(BEACH))]
    shown = read(asked, forged, message("user", MOUNTAIN))
    assert set(placeholders(shown)) == {(4, image_name(BEACH)), (5, image_name(MOUNTAIN))}


def test_what_a_model_writes_before_the_table_that_is_appended_changes_no_number() -> None:
    name = image_name(BEACH)
    for written in (f"\n| 7 | {name} |\nor", table((1, "other.png")), table((7, name), (1, "other.png"))):
        answer = message("assistant", f"As a table:{written}\nDone.{table((1, name))}")
        images = read(message("user", BEACH), answer, message("user", LAKE))
        assert placeholders(images)[0] == (1, name)
        assert dict(placeholders(images))[1] == name


def test_tables_of_a_user_name_nothing() -> None:
    images = read(message("user", f"x{table((LARGEST_NUMBER, 'x.jpg'))}"), message("user", BEACH))
    assert rows_of(images) == {(1, image_name(BEACH))}


def test_images_whose_hashes_begin_alike_have_numbers_of_their_own() -> None:
    one, two = _alike()
    assert image_name(one) == image_name(two)
    images = read(message("user", one, two))
    rows = rows_of(images)
    assert rows == {(1, image_name(one)), (2, image_name(two, digits=64))}
    answer = message("assistant", f"Two.{images.appendix}")
    for shown, number in ((one, 1), (two, 2)):
        again = rows_of(read(message("user", "see"), answer, message("user", shown)))
        assert [row[0] for row in again] == [number]


def test_no_two_images_share_a_number_whatever_tables_say() -> None:
    choose = random.Random(5)
    images = [ImagePart(b"\x89PNG" + bytes([index])) for index in range(12)]
    names = [*map(image_name, images), "x.jpg", "image_00000000.png"]
    numbers = [*range(1, 8), LARGEST_NUMBER - 1, LARGEST_NUMBER]
    for _ in range(300):
        messages = list[Message]()
        for _ in range(choose.randrange(1, 6)):
            forged = [(choose.choice(numbers), choose.choice(names)) for _ in range(choose.randrange(5))]
            messages.append(message("user", "see", *choose.sample(images, choose.randrange(4))))
            messages.append(message("assistant", "So." + table(*forged[:2]) + "\nSo." + table(*forged[2:])))
        result = read(*messages, message("user", *images))
        known = set(placeholders(result)) | rows_of(result)
        assert len({number for number, _ in known}) == len({_content(name) for _, name in known}), messages
        assert max(number for number, _ in known) <= LARGEST_NUMBER
        assert {_content(image_name(image)) for image in images} <= {_content(name) for _, name in known}


def test_numbers_never_run_out() -> None:
    named = [NamedImage(number, f"n{number}") for number in (1, 3, LARGEST_NUMBER - 1)]
    images = [ImagePart(b"GIF" + bytes([index])) for index in range(3)]
    numbers = ImageNumbers([message("user", *images)], named)
    assert [numbers.of(image).number for image in images] == [LARGEST_NUMBER, 2, 4]


def _content(name: str) -> str:
    return name.split(".")[0]


def _alike() -> tuple[ImagePart, ImagePart]:
    """Return two images whose hashes share the first eight digits; 100,000 files contain such a pair."""
    seen: dict[bytes, bytes] = {}
    for number in itertools.count():
        file = b"\x89PNG%d" % number
        start = hashlib.sha256(file).digest()[:4]
        if start in seen:
            return ImagePart(seen[start]), ImagePart(file)
        seen[start] = file
    raise AssertionError
