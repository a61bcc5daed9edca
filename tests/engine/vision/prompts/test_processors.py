"""Unusual processors work as in mlx-vlm; failures keep the processor's own message."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder
from greenroom.tests.support.engines.vision_adapters import asking, message, png, seeing_adapter


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
        ("dots_ocr", "its image processor is unusable: size must have one of the following set of keys"),
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
