"""Forced calls under random schemas: every format writes valid calls, and parses and renders them.

Random walks through the grammars write 200 of them per format (`make soak`, about 4 minutes for all), and so
do tiny models with a template of the format, in one batch (15 minutes).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.formats.registry import CALL_SYNTAXES, make_tool_parser
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.parsers.parser import CallArguments, ParsedCall, ParserEvent, ToolCallParser
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import CallConstraint, Constraint
from greenroom.tests.support.grammars.grammar_walks import END, Grammars, validate
from greenroom.tests.support.grammars.random_schemas import RandomSchemas
from greenroom.tests.support.parsers.call_models import call_adapter, force_calls
from greenroom.tests.support.parsers.model_outputs import collect_calls, extract_calls

REQUIRED, NAMED = ToolChoice("required"), ToolChoice("named", "find_all")


TinyModel = Callable[..., Path]


def values(calls: tuple[ParsedCall, ...]) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in calls]


def read_while_written(
    parser: ToolCallParser, text: str, tools: tuple[Tool, ...], seed: int
) -> list[ParserEvent]:
    """Return the events of a text fed in random pieces; calls are emitted before they are complete."""
    chance, stream = random.Random(seed), parser.new_stream(tools, "immediate")
    events, at = list[ParserEvent](), 0
    while at < len(text):
        length = chance.randint(1, 12)
        events += stream.feed(text[at : at + length])
        at += length
    events += stream.finish()
    pieces = [event.fragment for event in events if isinstance(event, CallArguments)]
    calls = collect_calls(events).calls
    assert len(pieces) > len(calls) or max(len(call.arguments) for call in calls) < 50, text
    return events


def force_a_call(grammars: Grammars, call_format: str, seed: int) -> None:
    """Force a call to one of two tools with random schemas, strict or not, and check the output."""
    schemas, parser = RandomSchemas(seed), make_tool_parser(call_format)
    tools = tuple(schemas.tool(name, strict=seed % 3 > 0) for name in ("look_up", "find_all"))
    choice, parallel = (NAMED if seed % 5 == 0 else REQUIRED), seed % 4 > 0
    constraint = Constraint(calls=CallConstraint(tools, choice, call_format, parallel))
    # A random string rarely ends: some walks take more than 5,000 tokens.
    written = grammars.walk(constraint, seed, limit=20_000, eager={END: 0.7})
    assert written.stopped
    extracted = extract_calls(parser, written.text, tools)
    assert extracted.calls, written.text
    assert collect_calls(read_while_written(parser, written.text, tools, seed)) == extracted, written.text
    assert not extracted.text.strip()
    assert parallel or len(extracted.calls) == 1
    by_name = {tool.name: tool.parameters for tool in tools}
    for call in extracted.calls:
        assert call.name == "find_all" or choice is REQUIRED
        validate(by_name[call.name], call.arguments)
    rendered = parser.render_all(extracted.calls)
    assert rendered is not None
    assert values(extract_calls(parser, rendered, tools).calls) == values(extracted.calls)


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_forced_call_validates_and_is_read_back(grammars: Grammars, call_format: str) -> None:
    for seed in (1, 8):
        force_a_call(grammars, call_format, seed)


@pytest.mark.soak
@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_two_hundred_forced_calls_validate_and_are_read_back(grammars: Grammars, call_format: str) -> None:
    for seed in range(200):
        force_a_call(grammars, call_format, seed)


@pytest.mark.soak
@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_model_makes_two_hundred_forced_calls_in_a_batch(
    tiny_model: TinyModel, tmp_path: Path, call_format: str
) -> None:
    import_text_libraries()
    folder = tiny_model("qwen3")
    answers = force_calls(folder, call_adapter(folder, tmp_path, call_format), range(200))
    whole = [answer for answer in answers if answer.reason == "tool_calls"]
    assert len(whole) >= len(answers) - 2  # The other answers have reached the token limit.
    for answer in whole:
        assert answer.calls
        assert not answer.text.strip()
        assert answer.parallel or len(answer.calls) == 1
        schemas = {tool.name: tool.parameters for tool in answer.choice.callable(answer.tools)}
        for call in answer.calls:
            validate(schemas[call.name], call.arguments)
