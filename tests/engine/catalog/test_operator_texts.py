"""Tests of files that the settings name: their models, and unusable ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.operator_texts import (
    MAX_BYTES,
    allows_vision,
    check_vision,
    find_bad_file,
    system_prompt_of,
    with_operators_parsers,
)
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


def test_a_models_own_system_prompt_goes_before_everybodys(tmp_path: Path) -> None:
    for name, text in (("all", "Be brief.\n"), ("own", "\ufeffSpeak Latin.\n\n"), ("none", "\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    own, none = (ModelSettings(system_prompt=str(tmp_path / name)) for name in ("own", "none"))
    tables = (("org/latin*", own), ("org/bare", none))
    settings = Settings(system_prompt=str(tmp_path / "all"), model_settings=tables)
    assert system_prompt_of("org/latin-4bit", settings) == "Speak Latin."
    assert system_prompt_of("org/other", settings) == "Be brief."
    assert system_prompt_of("org/bare", settings) == ""
    assert system_prompt_of("org/other", Settings()) == ""
    assert find_bad_file(settings) is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"a" * (MAX_BYTES + 1), "longer than"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "prompt"
    if content is not None:
        file.write_bytes(content)
    assert complaint in (find_bad_file(Settings(system_prompt=str(file))) or "")
    settings = Settings(model_settings=(("org/*", ModelSettings(system_prompt=str(file))),))
    assert (find_bad_file(settings) or "").startswith('model."org/*".system_prompt: the file')
    with pytest.raises(ProblemError, match=complaint):
        system_prompt_of("org/model", settings)


RECORD = CapabilityRecord("text", "qwen", "qwen3", 4096, tool_parser="qwen3_coder")


def with_parsers(*pairs: tuple[str, str]) -> Settings:
    tables = tuple((name, ModelSettings(tool_parser=parser)) for name, parser in pairs)
    return Settings(model_settings=tables)


def test_the_operators_parser_of_calls_goes_before_the_records() -> None:
    settings = with_parsers(("org/*", "llama_json"), ("*", "harmony"), ("org/other", "mistral"))
    assert with_operators_parsers(RECORD, settings, "org/model").tool_parser == "llama_json"
    assert with_operators_parsers(RECORD, settings, "org/other").tool_parser == "mistral"
    assert with_operators_parsers(RECORD, Settings(), "org/model") == RECORD


def test_nothing_but_a_star_stands_for_other_text_in_a_name() -> None:
    settings = with_parsers(("org/model[4-bit]", "mistral"), ("org/model?", "harmony"))
    assert with_operators_parsers(RECORD, settings, "org/model[4-bit]").tool_parser == "mistral"
    assert with_operators_parsers(RECORD, settings, "org/model4") == RECORD


def test_the_operators_parser_of_thoughts_goes_before_the_records() -> None:
    settings = Settings(model_settings=(("org/model", ModelSettings(thinking_parser="think_tag")),))
    record = with_operators_parsers(RECORD, settings, "org/model")
    assert (record.tool_parser, record.reasoning_parser) == ("qwen3_coder", "think_tag")
    assert with_operators_parsers(RECORD, settings, "org/another") == RECORD


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
