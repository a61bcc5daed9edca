"""Selection of a conversation's images."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from greenroom.engine.media.images import ImageLimits
from greenroom.engine.vision.image_reader import DOCUMENT_NOT_SHOWN, NOT_SHOWN, check_sizes, select_media
from greenroom.schemas.messages.messages import DocumentPart, ImagePart, Message
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.vision_adapters import message

LIMITS = ImageLimits(images=3, bytes_together=10)


def images(messages: Sequence[Message]) -> str:
    """Return the file contents of the messages' images, `-` for each dropped one."""
    parts = [part for each in messages for part in each.content]
    names: dict[object, str] = {NOT_SHOWN: "-", DOCUMENT_NOT_SHOWN: "_"}
    return "".join(
        part.data.decode() if isinstance(part, ImagePart) else names.get(part, "") for part in parts
    )


def turns(*files: str) -> list[Message]:
    """Return a conversation with images, turn by turn."""
    asked = [message(*(letter.encode() for letter in group), "?") for group in files]
    return [each for question in asked for each in (question, message("Ah.", role="assistant"))][:-1]


def test_of_many_images_the_newest_are_shown() -> None:
    assert images(select_media(turns("a", "b", "c"), "all", LIMITS)) == "abc"
    assert images(select_media(turns("a", "b", "c", "d"), "all", LIMITS)) == "-bcd"
    assert images(select_media(turns("ab", "cd"), "all", LIMITS)) == "-bcd"


def test_the_oldest_images_go_some_at_a_time() -> None:
    limits = attrs.evolve(LIMITS, images=4)
    shown = [images(select_media(turns(*"abcdefgh"[:count]), "all", limits)) for count in range(4, 9)]
    assert shown == ["abcd", "--cde", "--cdef", "----efg", "----efgh"]


def test_more_than_are_allowed_since_the_last_answer_are_refused_by_name() -> None:
    with pytest.raises(ProblemError) as caught:
        select_media(turns("a", "bcde"), "all", LIMITS)
    problem = caught.value.problem
    assert (problem.status, problem.code, problem.param) == (400, "too_many_images", "parts[3]")
    assert "4 images" in problem.detail


def test_a_model_that_takes_one_image_says_so_and_blames_no_setting() -> None:
    single = ImageLimits(images=1, pages=1, single=True)
    with pytest.raises(ProblemError) as caught:
        select_media(turns("ab"), "all", single)
    problem = caught.value.problem
    assert (problem.status, problem.code) == (400, "too_many_images")
    assert problem.detail == "There are 2 images, but this model takes one at a time."


def test_images_of_earlier_steps_of_one_task_make_room() -> None:
    looks = [message("Do.")]
    for letter in "abcde":
        looks += [message(role="assistant"), message(letter.encode(), role="tool")]
    assert images(select_media(looks, "all", LIMITS)) == "--cde"


def test_with_history_last_a_message_with_images_is_answered_by_itself() -> None:
    system = message("Be brief.", role="system")
    given = select_media([system, *turns("a", "bc")], "last", LIMITS)
    assert [each.role for each in given] == ["system", "user"]
    assert images(given) == "bc"


def test_with_history_last_a_message_of_text_has_its_conversation_without_images() -> None:
    first = message(b"a", DocumentPart(b"p"), "?")
    given = select_media([first, message("Ah.", role="assistant"), message("And?")], "last", LIMITS)
    assert [each.role for each in given] == ["user", "assistant", "user"]
    assert images(given) == "-_"


def test_with_history_last_the_steps_since_the_last_question_stay() -> None:
    steps = [message(b"a"), message(role="assistant"), message(b"b", role="tool")]
    assert images(select_media([*turns("x"), *steps], "last", LIMITS)) == "ab"


def test_files_that_are_too_large_together_are_refused() -> None:
    with pytest.raises(ProblemError) as caught:
        check_sizes([message(b"12345", b"678901")], LIMITS)
    assert (caught.value.problem.status, caught.value.problem.param) == (400, "parts[1]")
    check_sizes([message(b"12345", b"67890")], LIMITS)
