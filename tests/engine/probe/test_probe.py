"""The choice of parsers from raw outputs: the model's own first, another only on proof."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from greenroom.engine.formats.call_format import CallFormat
from greenroom.engine.formats.registry import (
    FORMATS,
    REASONING_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.parsers.parser import NullReasoningParser
from greenroom.engine.probe.probe import (
    Answer,
    Question,
    choose_reasoning_parser,
    choose_tool_parser,
    reasons,
)
from greenroom.schemas.events.events import Finished, FinishReason, Usage
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput

CITIES = ("Paris", "Cairo", "Lima", "Oslo")
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "CITY"}}\n</tool_call>'
XML = '<function=get_weather>{"city": "CITY"}</function>'

MISTRAL = '[TOOL_CALLS]get_weather[ARGS]{"city": "CITY"}'


def answer(
    raw: str, city: str = "", prompt: str = "<|im_start|>assistant\n", reason: FinishReason = "stop"
) -> Answer:
    asked = ChatInput((Message("user", (TextPart("What is the weather?"),)),))
    question = Question(asked, prompt=prompt, city=city)
    return Answer(question, (Finished(reason, Usage(), raw=raw.replace("CITY", city)),))


def chosen(own: str, raws: Sequence[str]) -> str | None:
    answers = [answer(raw, city) for raw, city in zip(raws, CITIES, strict=True)]
    parser = choose_tool_parser(make_tool_parser(own), NullReasoningParser(), answers)
    return None if parser is None else parser.parser_id


def test_another_parser_needs_three_of_four_calls_that_the_own_one_does_not_find() -> None:
    assert chosen("hermes_json", [XML] * 4) == "llama_xml"
    assert chosen("hermes_json", [XML] * 3 + ["No idea."]) == "llama_xml"
    assert chosen("hermes_json", [XML] * 2 + ["No idea."] * 2) is None
    assert chosen("hermes_json", [MISTRAL, HERMES, MISTRAL, HERMES]) is None


def test_the_own_parser_stays_even_if_others_read_the_same_calls() -> None:
    for own in ("qwen3_coder", "llama_xml"):
        assert chosen(own, [XML] * 4) == own
    assert chosen("hermes_json", [f"{HERMES}{XML}"] * 4) == "hermes_json"


def test_name_and_arguments_must_be_those_that_were_asked_for() -> None:
    for wrong in (XML.replace("CITY", "Rome"), XML.replace("weather", "time"), XML.replace("city", "town")):
        assert chosen("hermes_json", [wrong] * 4) is None
    assert chosen("hermes_json", [""] * 4) is None


@pytest.mark.parametrize("written", FORMATS, ids=lambda known: known.parser_id)
def test_every_format_is_found_by_a_parser_that_writes_it(written: CallFormat) -> None:
    parser = make_tool_parser(written.parser_id)
    call = parser.render("get_weather", '{"city": "CITY"}')
    assert call is not None
    found = chosen("null", [call] * 4)
    assert found is not None
    writer = make_tool_parser(found).render("get_weather", '{"city": "CITY"}')
    assert writer is not None
    assert writer.strip() == call.strip()


def chosen_reasoning(own: str, *answers: Answer) -> str | None:
    parser = choose_reasoning_parser(make_reasoning_parser(own), answers)
    return None if parser is None else parser.parser_id


def test_reasoning_is_read_by_the_own_parser_if_it_finds_any() -> None:
    thought, plain = answer("<think>\nHm.\n</think>\n\nFive."), answer("Five.")
    assert chosen_reasoning("think_tag", thought, plain, plain, plain) == "think_tag"
    assert chosen_reasoning("null", thought, thought, thought, plain) == "think_tag"
    assert chosen_reasoning("null", thought, thought, plain, plain) is None
    seed = answer("<seed:think>Hm.</seed:think>Five.")
    assert chosen_reasoning("think_tag", seed, seed, seed, seed) == "seed_oss"


def test_plain_answers_hold_no_reasoning_in_any_format() -> None:
    plain = [answer(raw) for raw in ("Five.", "An apple.", "The sum is 5.", HERMES)]
    for own in REASONING_PARSERS:
        assert chosen_reasoning(own, *plain) is None


def test_an_opened_prompt_is_no_proof_that_a_whole_answer_is_reasoning() -> None:
    parser, opened = make_reasoning_parser("think_tag"), "<|im_start|>assistant\n<think>\n"
    assert not reasons(answer("Five.", prompt=opened), parser)
    assert reasons(answer("Hm.\n</think>\n\nFive.", prompt=opened), parser)
    assert reasons(answer("Hm, and then", prompt=opened, reason="length"), parser)
