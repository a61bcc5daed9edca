"""Tests of the conditions for vision: the operator's setting and the machine's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.kinds import detect
from greenroom.engine.catalog.operator import allows_vision, check_vision
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

GIGABYTE = 1 << 30


def sighted(*pairs: tuple[str, bool]) -> Settings:
    return Settings(model_settings=tuple((name, ModelSettings(vision=vision)) for name, vision in pairs))


def kind_of(folder: Path, settings: Settings) -> str:
    return detect(folder, allow_vision=allows_vision("org/model", settings)).model_type


def test_with_vision_off_the_text_half_alone_is_loaded(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    assert kind_of(folder, Settings()) == "vision"
    assert kind_of(folder, sighted(("org/*", False))) == "text"
    assert kind_of(folder, sighted(("*", False), ("org/model", True))) == "vision"


def test_a_model_that_can_but_see_is_refused_with_vision_off(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("smolvlm")
    settings = sighted(("*", False))
    with pytest.raises(ProblemError, match="vision is off") as caught:
        check_vision(detect(folder, allow_vision=False), folder, "m", settings, GIGABYTE)
    assert caught.value.problem.status == 503


def test_a_model_that_sees_takes_at_most_70_percent_of_the_memory(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    record, size = detect(folder), (folder / "model.safetensors").stat().st_size
    check_vision(record, folder, "m", Settings(), int(size / 0.69))
    with pytest.raises(ProblemError) as caught:
        check_vision(record, folder, "m", Settings(), int(size / 0.71))
    problem = caught.value.problem
    assert (problem.status, problem.code) == (507, "insufficient_memory")
    needed, available = size >> 20, int(size / 0.71 * 0.7) >> 20
    assert f"{needed:,} MB" in problem.detail
    assert f"{available:,} MB" in problem.detail
