"""Unusual processors work as in mlx-vlm; failures keep the processor's own message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.schemas.messages.messages import AudioPart, Message
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder
from greenroom.tests.support.engines.vision_adapters import asking, message, picture, png, seeing_adapter
from greenroom.tests.support.hostile import sounds


@pytest.mark.parametrize(("name", "tokens"), [("llama4", 4), ("deepseek_vl_v2", 13)])
def test_a_processor_of_unusual_form_makes_images_ready(name: str, tokens: int, tmp_path: Path) -> None:
    import_vision_libraries()
    adapter = seeing_adapter(make_vision_folder(name, tmp_path / name))
    prepared = adapter.prepare_input(asking([message("Look at ", png(64, 64), " there.")]))
    (image,) = prepared.images
    assert image.tokens == tokens
    for value in image.inputs.values():
        if getattr(value, "dtype", None) == np.bool_:
            assert value.shape == (1, image.end - image.start)
            assert value.all()


def test_what_stands_around_a_marker_is_replaced_with_it(tmp_path: Path) -> None:
    import_vision_libraries()
    adapter = seeing_adapter(make_vision_folder("minicpmo", tmp_path / "minicpmo"))
    prepared = adapter.prepare_input(asking([message("Look at ", png(64, 64), " there.")]))
    text = adapter.tokenizer.decode(prepared.tokens)
    assert "</image>) there." in text
    assert "./" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llava", "its processor fails with an image (TypeError: ImagesKwargs.__init__() got an unexpected"),
        pytest.param(
            "dots_ocr",
            "its image processor is unusable: size must have one of the following set of keys",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_what_a_processor_raises_is_said_in_its_own_words(name: str, words: str, tmp_path: Path) -> None:
    import_vision_libraries()
    folder = make_vision_folder(name, tmp_path / name)
    path = folder / "preprocessor_config.json"
    if name == "dots_ocr":
        path.write_text(json.dumps({**json.loads(path.read_text()), "size": {"height": 56}}))
    with pytest.raises(ProblemError) as caught:
        seeing_adapter(folder)
    problem = caught.value.problem
    assert (problem.status, problem.code) == (503, "load_failed")
    assert words in problem.detail
    assert "takes no images" not in problem.detail
    assert "replaces nothing" not in problem.detail


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
