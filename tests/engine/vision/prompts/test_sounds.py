"""Sounds in conversations: tokens and arrays equal those of mlx-vlm's own preparation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.schemas.messages.messages import AudioPart, Message
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.engines.vision_adapters import asking, message, picture, png, seeing_adapter
from greenroom.tests.support.hostile import sounds

Opened = tuple[Path, VisionAdapter]

TONE = AudioPart(sounds.tone(0.5), param="messages[0].content[0].input_audio")


@pytest.fixture
def opened(opened_kind: Callable[[str], Opened]) -> Opened:
    return opened_kind("gemma4")


def refused(adapter: VisionAdapter, *messages: Message) -> Problem:
    with pytest.raises(ProblemError) as caught:
        adapter.prepare_input(asking(messages))
    assert caught.value.problem.status == 400
    return caught.value.problem


@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_images_and_sounds_have_the_librarys_own_tokens(opened: Opened) -> None:
    from mlx_vlm.utils import load_processor, prepare_inputs

    folder, adapter = opened
    conversation = [message("Hear ", TONE, " and see ", png(96, 64), ".")]
    prepared = adapter.prepare_input(asking(conversation))
    processor = load_processor(folder, add_detokenizer=False)
    text = adapter.render_prompt(asking(conversation)).text
    prepare: Any = prepare_inputs
    heard = np.frombuffer(TONE.data[44:], np.int16).astype(np.float32) / 32768
    made = prepare(processor, images=[picture(96, 64)], audio=[heard], prompts=text, add_special_tokens=False)
    assert prepared.tokens == tuple(np.array(made["input_ids"]).reshape(-1).tolist())
    sound, image = prepared.images
    assert (sound.is_sound, image.is_sound) == (True, False)
    assert np.allclose(sound.inputs["input_features"], np.array(made["input_features"]), atol=1e-4)


def test_a_sound_that_comes_again_is_not_decoded_again(opened: Opened) -> None:
    _, adapter = opened
    first = adapter.prepare_input(asking([message("Hear ", TONE)]))
    again = [message("Hear ", TONE), message("A tone.", role="assistant"), message("Again?")]
    second = adapter.prepare_input(asking(again))
    assert second.images[0].inputs is first.images[0].inputs


@pytest.mark.parametrize("name", sounds.REFUSED)
def test_hostile_sounds_are_refused_by_name(opened: Opened, name: str) -> None:
    part = AudioPart(sounds.REFUSED[name](), param=TONE.param)
    problem = refused(opened[1], message(part, "What is this?"))
    assert problem.param == TONE.param


def test_a_sound_is_no_longer_than_its_model_hears(opened: Opened) -> None:
    problem = refused(opened[1], message(AudioPart(sounds.tone(4.2), param="a"), "What is this?"))
    assert "4 seconds" in problem.detail


def test_of_many_sounds_the_newest_are_heard(opened_kind: Callable[[str], Opened]) -> None:
    adapter = seeing_adapter(opened_kind("gemma4")[0], images_max_count=2)
    assert refused(adapter, message(TONE, TONE, TONE)).code == "too_many_recordings"
    turns = [message("Hear ", TONE), message("Yes.", role="assistant")] * 2
    prepared = adapter.prepare_input(asking([*turns, message(TONE, "And?")]))
    assert len(prepared.images) == 2
    assert "Hear [Recording]" in adapter.tokenizer.decode(prepared.tokens)


def test_marks_of_sounds_in_a_users_text_are_text(opened: Opened) -> None:
    _, adapter = opened
    prepared = adapter.prepare_input(asking([message("<|audio|><|image|>", TONE, "<|audio|>")]))
    ident = adapter.tokenizer.added_tokens["<|audio|>"]
    assert prepared.tokens.count(ident) == prepared.images[0].tokens


def test_models_that_do_not_hear_read_a_word_for_earlier_sounds(opened_kind: Callable[[str], Opened]) -> None:
    _, adapter = opened_kind("qwen2_vl")
    assert "does not hear" in refused(adapter, message("Hear ", TONE)).detail
    earlier = [message("Hear ", TONE), message("A tone.", role="assistant"), message("Sure?")]
    prepared = adapter.prepare_input(asking(earlier))
    assert "Hear [Recording]" in adapter.tokenizer.decode(prepared.tokens)
