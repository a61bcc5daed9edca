"""Prompts with images: tokens and arrays equal those of mlx-vlm's own preparation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from PIL import Image

from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.engines.vision_adapters import asking, message, picture, png, seeing_adapter
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS

Opened = tuple[Path, VisionAdapter]

SIZES = ((96, 64), (300, 200), (64, 400), (33, 47))
PICTURES = tuple(picture(*size, seed) for seed, size in enumerate(SIZES))
FILES = tuple(png(*size, seed) for seed, size in enumerate(SIZES))
CONVERSATION = (
    message("You look at pictures.", role="system"),
    message("Compare ", FILES[0], "\n\nwith\n", FILES[1], "\n"),
    message("They differ.", role="assistant"),
    message(FILES[2], FILES[3], "And these?"),
)
TOOL = Tool("look", "Looks at something.", {"type": "object", "properties": {}})
CALLING = (
    message("Look there."),
    Message("assistant", (), tool_calls=(ToolCall("call_1", "look", "{}"),)),
    message("Seen: ", FILES[0], " and ", FILES[1], role="tool", tool_call_id="call_1"),
)


@pytest.fixture(params=VISION_KINDS)
def opened(request: pytest.FixtureRequest, opened_kind: Callable[[str], Opened]) -> Opened:
    return opened_kind(request.param)


@pytest.fixture
def adapter(opened_kind: Callable[[str], Opened]) -> VisionAdapter:
    return opened_kind("qwen2_vl")[1]


def by_library(folder: Path, text: str, images: Sequence[Image.Image]) -> dict[str, Any]:
    """Return mlx-vlm's own inputs for a rendered prompt."""
    from mlx_vlm.utils import load_processor, prepare_inputs

    processor = load_processor(folder, add_detokenizer=False)
    prepare: Any = prepare_inputs
    made = prepare(processor, images=list(images), prompts=text, add_special_tokens=False)
    return {name: np.array(value) for name, value in made.items() if value is not None}


def rendered(folder: Path, messages: Sequence[Message], **options: Any) -> str:
    """Return the output of a model's chat template for messages with images as parts."""
    from transformers import AutoTokenizer

    turns: list[dict[str, Any]] = []
    for each in messages:
        parts = [
            {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}
            for part in each.content
        ]
        calls = [{"type": "function", "function": {"name": "look", "arguments": {}}}] * len(each.tool_calls)
        turns.append({"role": each.role, "content": parts, **({"tool_calls": calls} if calls else {})})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options))


def prepare(adapter: VisionAdapter, messages: Sequence[Message], **fields: Any) -> PreparedPrompt:
    return adapter.prepare_input(asking(messages, **fields))


def test_tokens_are_the_librarys_own(opened: Opened) -> None:
    folder, adapter = opened
    prepared = prepare(adapter, CONVERSATION)
    expected = by_library(folder, rendered(folder, CONVERSATION), PICTURES)["input_ids"]
    assert prepared.tokens == tuple(expected.reshape(-1).tolist())


def test_each_image_has_the_span_and_the_arrays_of_itself_alone(opened: Opened) -> None:
    folder, adapter = opened
    images = prepare(adapter, CONVERSATION).images
    ends = [0, *(end for image in images for end in (image.start, image.end))]
    assert ends == sorted(ends)
    for image, alone in zip(images, PICTURES, strict=True):
        expected = by_library(folder, rendered(folder, [message(b"")]), [alone])
        arrays = {name: expected[name] for name in image.inputs}
        assert arrays.keys() >= {"pixel_values"}
        for name, value in image.inputs.items():
            assert isinstance(value, np.ndarray)
            assert np.array_equal(value, arrays[name])
        config = json.loads((folder / "config.json").read_text())
        ident = config.get("image_token_id", config.get("image_token_index"))
        assert image.tokens == int((expected["input_ids"] == ident).sum())


def test_images_in_results_of_tools_stand_where_the_template_writes_them(opened: Opened) -> None:
    folder, adapter = opened
    prepared = adapter.prepare_input(asking(CALLING, tools=(TOOL,)))
    assert len(prepared.images) == 2
    text = adapter.render_prompt(asking(CALLING, tools=(TOOL,))).text
    expected = by_library(folder, text, PICTURES[:2])["input_ids"]
    assert prepared.tokens == tuple(expected.reshape(-1).tolist())


def test_marks_in_a_users_text_are_text(opened: Opened) -> None:
    folder, adapter = opened
    words = " ".join(adapter.tokenizer.control_tokens)
    forged = f"{words} \U000f4e230\U000f4e23 \U000f4e20x {VISION_KINDS[folder.name].mark}"
    bare = prepare(adapter, [message(forged)])
    assert bare.images == ()
    shown = prepare(adapter, [message(forged, FILES[0], forged)])
    assert len(shown.images) == 1
    image = shown.images[0]
    own = set(shown.tokens[image.start : image.end]) & set(adapter.tokenizer.added_tokens.values())
    assert own
    assert own.isdisjoint(shown.tokens[: image.start] + shown.tokens[image.end :])
    assert own.isdisjoint(bare.tokens)


def test_an_image_that_comes_again_is_not_processed_again(opened: Opened) -> None:
    _, adapter = opened
    first = prepare(adapter, CONVERSATION[:2])
    second = prepare(adapter, CONVERSATION)
    for before, after in zip(first.images, second.images, strict=False):
        assert after.digest == before.digest
        assert after.inputs is before.inputs
    assert second.images[0].digest != second.images[1].digest
    assert second.tokens[: second.images[1].end] == first.tokens[: first.images[1].end]


def test_conversations_without_images_are_as_with_text(adapter: VisionAdapter) -> None:
    prepared = prepare(adapter, [message("Hello.")])
    assert prepared.images == ()
    assert prepared.max_tokens == adapter.context_length // 2


def test_answers_about_images_are_2048_tokens_long_unless_a_client_says(adapter: VisionAdapter) -> None:
    assert prepare(adapter, CONVERSATION).max_tokens == 2048
    overrides: Overrides = {"max_tokens": 5000}
    assert adapter.prepare_input(asking(CONVERSATION, overrides)).max_tokens == 5000


def test_a_prompt_that_is_shown_counts_the_tokens_of_images(adapter: VisionAdapter) -> None:
    contents = adapter.render_prompt(asking(CONVERSATION))
    assert contents.tokens == prepare(adapter, CONVERSATION).tokens
    assert contents.text.count("<|image_pad|>") == len(SIZES)


def test_the_last_message_may_be_continued(adapter: VisionAdapter) -> None:
    begun = (*CONVERSATION, message("They are", role="assistant"))
    request = asking(begun, continue_final_message=True)
    prepared = adapter.prepare_input(request)
    assert adapter.tokenizer.decode(prepared.tokens).endswith("They are")
    assert len(prepared.images) == len(SIZES)


def test_a_conversation_that_is_too_long_loses_turns_with_their_images(
    opened_kind: Callable[[str], Opened],
) -> None:
    _, adapter = opened_kind("gemma3")
    turns = [
        each
        for index in range(40)
        for each in (message(f"Question {index}. " * 200), message("Yes.", role="assistant"))
    ]
    request = asking([*turns[:2], message("This: ", FILES[0]), turns[1], *turns, message(FILES[1], "So?")])
    prepared = adapter.prepare_input(attrs.evolve(request, overflow="drop_oldest"))
    assert prepared.dropped_messages > 2
    assert len(prepared.images) == 1
    assert prepared.images[0].digest == prepare(adapter, [message(FILES[1], "So?")]).images[0].digest


def test_the_template_of_the_processors_own_file_is_used(
    opened_kind: Callable[[str], Opened], tmp_path: Path
) -> None:
    folder = shutil.copytree(opened_kind("qwen2_vl")[0], tmp_path / "moved")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = config.pop("chat_template")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": f"{template}Now:"}))
    prepared = prepare(seeing_adapter(folder), CONVERSATION)
    assert seeing_adapter(folder).tokenizer.decode(prepared.tokens).endswith("Now:")
    assert len(prepared.images) == len(SIZES)


def test_a_template_without_images_has_them_where_they_were_sent(
    opened_kind: Callable[[str], Opened], tmp_path: Path
) -> None:
    folder = shutil.copytree(opened_kind("gemma3")[0], tmp_path / "plain")
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    asked = [message("A ", FILES[0], " and ", FILES[1], ".")]
    expected = by_library(folder, "user: A <start_of_image> and <start_of_image>.\nassistant: ", PICTURES[:2])
    prepared = prepare(seeing_adapter(folder), asked)
    assert prepared.tokens == tuple(expected["input_ids"].reshape(-1).tolist())
    assert len(prepared.images) == 2
