"""Tests that the operator's parser settings override the model's record."""

from __future__ import annotations

from greenroom.engine.catalog.operator import with_operators_parsers
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import ModelSettings, Settings

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
