"""Models with bidirectional attention within an image attend as in mlx-vlm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.tests.support.engines.text_engines import finished
from greenroom.tests.support.engines.vision_engines import Parts, VisionDriver, expected, picture
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

pytestmark = pytest.mark.filterwarnings("ignore:At least one mel filter")

TWO: Parts = ["Look ", picture(2), " and then ", picture(3), " what is it, and why?"]


@pytest.fixture
def folder(tiny_vision_model: TinyVisionModel, tmp_path: Path) -> Path:
    """Return the folder of a tiny Gemma 4 with the large models' attention."""
    folder = tmp_path / "gemma4"
    shutil.copytree(tiny_vision_model("gemma4"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["use_bidirectional_attention"] = "vision"
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.deep
def test_images_are_computed_as_the_library_does(folder: Path) -> None:
    driver = VisionDriver(folder)
    driver.submit(TWO, 20)
    driver.run()
    assert driver.tokens == [expected(folder, TWO, 20)]


@pytest.mark.deep
def test_a_slice_cuts_no_image(folder: Path) -> None:
    driver = VisionDriver(folder, options={"prefill_policy": PrefillPolicy(min_chunk=5, max_chunk=5)})
    driver.submit(TWO, 20)
    driver.run()
    assert driver.tokens == [expected(folder, TWO, 20)]


@pytest.mark.deep
def test_an_image_of_a_later_turn_is_seen_behind_what_is_cached(folder: Path) -> None:
    driver = VisionDriver(folder, options={"prefix_cache": PrefixCache(1 << 28)})
    first: Parts = [*TWO[:2], " and then?"]
    driver.submit(first, 20)
    driver.run()
    second: Parts = [*first, " Now ", picture(3), " why?"]
    asked = driver.submit(second, 20)
    driver.run()
    assert finished(driver.events[asked]).usage.cached > 70
    assert driver.tokens[1] == expected(folder, second, 20)
