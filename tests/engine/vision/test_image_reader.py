"""Processing of images and documents: limits, error messages and caching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.media.images import ImageLimits
from greenroom.engine.vision.image_processor import ImageProcessor, ProcessedImage
from greenroom.engine.vision.image_reader import (
    DOCUMENT_NOT_SHOWN,
    NOT_SHOWN,
    ProcessedImages,
    check_sizes,
    select_media,
)
from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.schemas.messages.messages import DocumentPart, ImagePart, Message
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.engines.vision_adapters import asking, message, png, seeing_adapter
from greenroom.tests.support.hostile import documents, pictures

Opened = tuple[Path, VisionAdapter]


@pytest.fixture
def adapter(opened_kind: Callable[[str], Opened]) -> VisionAdapter:
    return opened_kind("qwen2_vl")[1]


def refused(adapter: VisionAdapter, *messages: Message) -> Problem:
    with pytest.raises(ProblemError) as caught:
        adapter.prepare_input(asking(messages))
    assert caught.value.problem.status == 400
    return caught.value.problem


def pdf(pages: int, name: str | None = None) -> DocumentPart:
    return DocumentPart(documents.document(pages), name=name, param=f"{pages} pages")


@pytest.mark.parametrize("make", pictures.REFUSED.values(), ids=pictures.REFUSED)
def test_hostile_images_are_refused_by_name(adapter: VisionAdapter, make: Callable[[], bytes]) -> None:
    assert refused(adapter, message("What is this? ", make())).param == "parts[1]"


def test_an_image_that_the_processor_refuses_is_named(adapter: VisionAdapter) -> None:
    problem = refused(adapter, message(png(4000, 4)))
    assert problem.param == "parts[0]"
    assert "4,000 x 4" in problem.detail


def test_no_image_is_named_for_an_error_of_the_device(
    adapter: VisionAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> ProcessedImage:
        raise RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory.")

    monkeypatch.setattr(ImageProcessor, "process", fail)
    with pytest.raises(RuntimeError, match="METAL"):
        adapter.prepare_input(asking([message(png(41, 43))]))


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen3_vl", "smolvlm", "gemma3", "gemma4"])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (1, 5_000), (5_000, 1), (3, 700)])
def test_images_of_any_shape_are_shown_or_refused(
    opened_kind: Callable[[str], Opened], kind: str, size: tuple[int, int]
) -> None:
    adapter = opened_kind(kind)[1]
    try:
        prepared = adapter.prepare_input(asking([message(png(*size), "What is this?")]))
    except ProblemError as error:
        problem = error.problem
        if (problem.status, problem.param) != (400, "parts[0]"):
            raise
    else:
        assert prepared.images[0].tokens >= 1


def test_pages_of_documents_are_images_in_order(adapter: VisionAdapter) -> None:
    prepared = adapter.prepare_input(asking([message("Read ", pdf(3, "a.pdf"), "please.")]))
    assert len(prepared.images) == 3
    assert len({image.digest for image in prepared.images}) == 3
    assert "[Document: a.pdf]" in adapter.tokenizer.decode(prepared.tokens)
    again = adapter.prepare_input(asking([message("Read ", pdf(3, "b.pdf"))]))
    assert [
        image.inputs is before.inputs for image, before in zip(again.images, prepared.images, strict=True)
    ]


def test_pages_of_all_documents_are_limited_together(opened_kind: Callable[[str], Opened]) -> None:
    adapter = seeing_adapter(opened_kind("qwen2_vl")[0], images_max_pages=4)
    assert len(adapter.prepare_input(asking([message(pdf(2), pdf(1))])).images) == 3
    assert refused(adapter, message(pdf(5))).param == "5 pages"
    problem = refused(adapter, message(pdf(3), pdf(2)))
    assert problem.param == "3 pages"
    assert "room for 2: all documents of a request share its pages" in problem.detail
    earlier = adapter.prepare_input(
        asking([message(pdf(3)), message("Ah.", role="assistant"), message(pdf(2))])
    )
    assert len(earlier.images) == 2
    assert "An earlier document" in adapter.tokenizer.decode(earlier.tokens)


def test_an_image_of_low_detail_takes_fewer_tokens(adapter: VisionAdapter) -> None:
    data = pictures.photo(1000, 800)
    low, high = (
        adapter.prepare_input(asking([message(ImagePart(data, detail=detail))])).images[0]
        for detail in ("low", "high")
    )
    assert low.tokens < high.tokens
    assert low.digest != high.digest


def test_raw_prompts_hold_no_images(adapter: VisionAdapter) -> None:
    ident = adapter.tokenizer.added_tokens["<|image_pad|>"]
    prompts: tuple[Any, ...] = ((1, ident, 2), "a <|image_pad|> b")
    for prompt in prompts:
        request = InferenceRequest("r", ModelKey("m"), RawInput(prompt))
        with pytest.raises(ProblemError, match="stand for an image"):
            adapter.prepare_input(request)
    assert adapter.prepare_input(InferenceRequest("r", ModelKey("m"), RawInput("Hello"))).images == ()


def test_images_are_kept_within_their_bytes() -> None:
    import numpy as np

    kept = ProcessedImages(max_bytes=100)
    made: list[int] = []

    def image(number: int, nbytes: int = 40) -> ProcessedImage:
        def process() -> ProcessedImage:
            made.append(number)
            return ProcessedImage(bytes([number]), None, 1, {"x": np.zeros(nbytes, np.uint8)})  # type: ignore[arg-type]

        return kept.get(bytes([number]), process)

    for number in (1, 2, 1, 3, 1, 2):
        image(number)
    assert made == [1, 2, 3, 2]
    assert kept.nbytes == 80
    image(9, nbytes=101)
    image(9, nbytes=101)
    assert made[-2:] == [9, 9]
    assert kept.nbytes == 80


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
