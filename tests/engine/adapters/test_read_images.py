"""A conversation's images as models read them, with stable ids."""

from __future__ import annotations

import hashlib

import pytest

from greenroom.engine.adapters.image_ids import (
    NamedImage,
    ReadImages,
    filename_table,
    read_images,
    split_tables,
)
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    Role,
    TextPart,
)
from greenroom.schemas.problems import Problem, ProblemError

BEACH = ImagePart(b"\xff\xd8\xff beach", param="messages[0].content[1].image_url.url")
MOUNTAIN = ImagePart(b"\x89PNG mountain")
LAKE = ImagePart(b"RIFF1234WEBP lake")


def name_of(image: ImagePart, extension: str) -> str:
    return f"image_{hashlib.sha256(image.data).hexdigest()[:8]}.{extension}"


BEACH_NAME, MOUNTAIN_NAME, LAKE_NAME = (
    name_of(BEACH, "jpeg"),
    name_of(MOUNTAIN, "png"),
    name_of(LAKE, "webp"),
)


def message(role: Role, *parts: str | ContentPart) -> Message:
    return Message(role, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def read(*messages: Message, takes_images: bool = True, ids: bool = True) -> ReadImages:
    return read_images(messages, "m", takes_images=takes_images, ids=ids)


def table(*rows: tuple[int, str], marker: str = "<!-- greenroom:filenames -->\n") -> str:
    lines = "".join(f"\n| {number} | {name} |" for number, name in rows)
    return f"\n\n{marker}| Image | Filename |\n|-------|----------|{lines}"


def shown(images: ReadImages) -> list[tuple[str, ...]]:
    """Return each message's texts, with `*` for an image."""
    return [
        tuple(part.text if isinstance(part, TextPart) else "*" for part in message.content)
        for message in images.messages
    ]


def test_document_002s_workflow_step_by_step() -> None:
    # 1: the first request; 2: its answer has the table.
    first = read(message("user", "describe", BEACH))
    assert shown(first) == [(f"describe\n[Image 1: {BEACH_NAME}]", "*")]
    assert first.appendix == table((1, BEACH_NAME))
    answer = message("assistant", f"A sandy beach with blue water.{first.appendix}")
    # 3: the client drops the image, and asks a text model.
    described = message("user", "describe")
    second = read(described, answer, message("user", "What color?"), takes_images=False)
    assert shown(second) == [
        (f"[Image 1: {BEACH_NAME}]\ndescribe",),
        ("A sandy beach with blue water.",),
        ("What color?",),
    ]
    assert second.appendix == ""
    # 4: another image, to the vision model again; 5: it is the second one.
    history: tuple[Message, ...] = (described, answer, message("user", "What color?"))
    history = (*history, message("assistant", "Blue."))
    third = read(*history, message("user", "new picture", MOUNTAIN))
    assert shown(third)[-1] == (f"new picture\n[Image 2: {MOUNTAIN_NAME}]", "*")
    assert shown(third)[:2] == [(f"[Image 1: {BEACH_NAME}]\ndescribe",), ("A sandy beach with blue water.",)]
    assert third.appendix == table((2, MOUNTAIN_NAME))
    # The first one again keeps its number.
    history = (*history, message("user", "new picture"), message("assistant", f"A peak.{third.appendix}"))
    fourth = read(*history, message("user", "and this?", BEACH))
    assert shown(fourth)[-1] == (f"and this?\n[Image 1: {BEACH_NAME}]", "*")
    assert fourth.appendix == table((1, BEACH_NAME))
    # A text model compares them by their numbers.
    asked = message("user", "Which is better for a vacation?")
    fifth = read(*history, asked, takes_images=False)
    placeholders = [text for texts in shown(fifth) for text in texts if "[Image" in text]
    assert placeholders == [f"[Image 1: {BEACH_NAME}]\ndescribe", f"[Image 2: {MOUNTAIN_NAME}]\nnew picture"]


def test_numbers_follow_the_first_appearance_of_the_content() -> None:
    images = read(
        message("user", BEACH, MOUNTAIN),
        message("assistant", "Two."),
        message("user", MOUNTAIN, ImagePart(BEACH.data, detail="low"), LAKE),
    )
    assert [texts[0] for texts in shown(images)[::2]] == [
        f"[Image 1: {BEACH_NAME}]",
        f"[Image 2: {MOUNTAIN_NAME}]",
    ]
    assert images.appendix == table((1, BEACH_NAME), (2, MOUNTAIN_NAME), (3, LAKE_NAME))


def test_images_that_no_table_names_yet_are_in_the_next_one() -> None:
    called = message("assistant", "")
    images = read(message("user", BEACH), called, message("tool", "done"))
    assert images.appendix == table((1, BEACH_NAME))


@pytest.mark.parametrize(
    "written",
    [
        table((4, BEACH_NAME)),
        table((4, BEACH_NAME), marker="<!-- mlxk:filenames -->\n"),
        table((4, BEACH_NAME), marker=""),
        f"\n\n| 4 | {BEACH_NAME} |",
        f"\n| 4 | {BEACH_NAME.removesuffix('.jpeg')}.png |",
        table((4, BEACH_NAME)).replace("\n", "\r\n"),
        table((4, BEACH_NAME), (4, MOUNTAIN_NAME), (7, BEACH_NAME)),
    ],
)
def test_tables_are_read_with_any_marker_and_without_one(written: str) -> None:
    images = read(
        message("user", "see"), message("assistant", f"Sand.{written}"), message("user", BEACH, LAKE)
    )
    assert shown(images)[1][0].rstrip() == "Sand."
    assert f"[Image 4: {BEACH_NAME}" in shown(images)[2][0].replace(".png", ".jpeg")
    assert shown(images)[2][2] in (f"[Image 5: {LAKE_NAME}]", f"[Image 8: {LAKE_NAME}]")


def test_a_table_of_plain_names_keeps_their_numbers() -> None:
    images = read(
        message("user", "see"),
        message("assistant", f"Sand.{table((1, 'beach.jpg'))}"),
        message("user", LAKE),
        takes_images=False,
    )
    assert shown(images) == [("[Image 1: beach.jpg]\nsee",), ("Sand.",), (f"[Image 2: {LAKE_NAME}]",)]


@pytest.mark.parametrize(
    "text",
    [
        "no table",
        "| a | b |",
        "| Image | Size |\n|---|---|\n| 1 | large |",
        "The filename | is | 3",
        "| 0 | image_00000000.png |",
        "| 9999999 | image_00000000.png |",
        "| 1 | image_xyz.png |",
    ],
)
def test_other_tables_stay(text: str) -> None:
    assert split_tables(text) == (text, ())


@pytest.mark.parametrize("text", ["Sand.", "Sand.\n", "", "a | b\n\n", "| 1 | 2 |\n|--|--|"])
def test_what_was_appended_is_taken_away_exactly(text: str) -> None:
    rows = (NamedImage(1, BEACH_NAME), NamedImage(2, LAKE_NAME))
    assert split_tables(text + filename_table(rows)) == (text, rows)


def test_only_the_assistants_tables_count() -> None:
    images = read(message("user", f"x{table((7, BEACH_NAME))}", BEACH))
    assert f"[Image 1: {BEACH_NAME}]" in shown(images)[0][0]


def test_with_ids_off_a_model_that_sees_reads_the_conversation_as_it_is() -> None:
    messages = (message("user", BEACH), message("assistant", f"Sand.{table((1, BEACH_NAME))}"))
    assert read(*messages, ids=False) == ReadImages(messages)


def refusal(*messages: Message, ids: bool = False) -> Problem:
    with pytest.raises(ProblemError) as caught:
        read(*messages, takes_images=False, ids=ids)
    assert (caught.value.problem.status, caught.value.problem.code) == (400, "unsupported_content")
    return caught.value.problem


def test_with_ids_off_a_text_model_reads_a_word_for_images_of_earlier_turns_and_of_tools() -> None:
    images = read(
        message("user", "a", BEACH, "b", DocumentPart(b"%PDF", name="c.pdf"), AudioPart(b"RIFF")),
        message("assistant", "Sand."),
        message("tool", "page", MOUNTAIN),
        message("user", "well?"),
        takes_images=False,
        ids=False,
    )
    assert shown(images) == [
        (f"a\n[Image 1: {BEACH_NAME}]\nb\n[Document: c.pdf]\n[Recording]",),
        ("Sand.",),
        (f"page\n[Image 2: {MOUNTAIN_NAME}]",),
        ("well?",),
    ]
    assert images.appendix == ""


def test_a_text_model_is_asked_about_no_image_in_the_last_turn() -> None:
    problem = refusal(message("user", "a", BEACH))
    assert problem.param == BEACH.param
    assert "'m' is a text model" in problem.detail
    refusal(message("user", MOUNTAIN), message("user", "b"))
    refusal(message("user", AudioPart(b"RIFF")), ids=True)
    refusal(message("user", DocumentPart(b"%PDF")), ids=True)
    images = read(message("user", BEACH), takes_images=False)
    assert (shown(images), images.appendix) == ([(f"[Image 1: {BEACH_NAME}]",)], table((1, BEACH_NAME)))


@pytest.mark.parametrize("takes_images", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_what_was_not_fetched_is_refused(takes_images: bool, ids: bool) -> None:
    for part in (ImagePart(url="https://a.org/b", param="u"), DocumentPart(url="https://a.org/b", param="u")):
        with pytest.raises(ProblemError, match="fetches no files") as caught:
            read(
                message("user", part),
                message("assistant", "?"),
                message("user", "a"),
                takes_images=takes_images,
                ids=ids,
            )
        assert caught.value.problem.param == "u"


@pytest.mark.parametrize(
    "line", ["|" + "-" * 1_000_000, "| 1 | a" + " " * 1_000_000 + "x", "|" + " " * 1_000_000 + "x"]
)
def test_a_line_that_is_too_long_for_a_table_is_not_searched(line: str) -> None:
    text = f"| Image | Filename |\n{line}"
    assert split_tables(text) == (text, ())


def test_a_long_hostile_table_is_read_in_one_pass() -> None:
    rows = "".join(f"\n| {number} | n{number} |" for number in range(1, 100_000))
    images = read(
        message("user", "see"),
        message("assistant", f"| Image | Filename |{rows}\n{'| ' * 100_000}"),
        message("user", LAKE),
    )
    assert f"[Image 100000: {LAKE_NAME}]" in shown(images)[-1][0]
