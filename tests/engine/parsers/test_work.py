"""Parsing cost is linear in the text, whatever it contains and however it is split.

The cost is the number of characters in all strings that the parsers create; no time is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from greenroom.engine.formats.registry import (
    REASONING_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.parsers.parser import ReasoningStream, ToolCallStream
from greenroom.tests.support.parsers.model_outputs import collect_calls
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN, two_of_a_class

PROSE = "A word, 3 < 4,\nand [more] {words}. "


class CopiedCharacters:
    """Counts the characters of strings that parsers create."""

    def __init__(self) -> None:
        self.count = 0
        self._known: dict[int, str] = {}

    def __enter__(self) -> CopiedCharacters:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "return" or "parsers" not in frame.f_code.co_filename:
            return
        values = frame.f_locals
        for value in (*values.values(), *getattr(values.get("self"), "__dict__", {}).values()):
            if type(value) is str and self._known.get(id(value)) is not value:
                self._known[id(value)] = value
                self.count += len(value)


def copied(stream: ToolCallStream | ReasoningStream, text: str, size: int = 16) -> int:
    with CopiedCharacters() as characters:
        for at in range(0, len(text), size):
            stream.feed(text[at : at + size])
        stream.finish()
    return characters.count


def unfinished(parser_id: str) -> dict[str, Callable[[int], str]]:
    """Return texts of any length whose kind is undecided until they end."""
    written = WRITTEN[parser_id]
    begun = written[: written.index("Paris")]
    start = make_tool_parser(parser_id).markers[0][0]
    return {
        "prose": lambda length: (PROSE * length)[:length],
        "white space": lambda length: "So" + " " * length,
        "an unclosed string": lambda length: begun + (PROSE * length)[:length],
        "white space in a block": lambda length: start + " " * length,
        "beginnings of calls": lambda length: (begun * length)[:length],
        "a call at the end of many": lambda length: (start * length)[:length] + written,
    }


def grown(make: Callable[[], Any], text: Callable[[int], str]) -> float:
    """Return the growth of copied characters when a text doubles."""
    return copied(make(), text(2_000)) / copied(make(), text(1_000))


@pytest.mark.parametrize("parser_id", two_of_a_class(WRITTEN))
def test_twice_the_text_is_twice_the_work(parser_id: str) -> None:
    parser = make_tool_parser(parser_id)
    factors = {
        name: grown(lambda: parser.new_stream(TOOLS), text) for name, text in unfinished(parser_id).items()
    }
    assert {name: factor for name, factor in factors.items() if factor > 2.3} == {}


@pytest.mark.parametrize("parser_id", two_of_a_class(WRITTEN))
def test_arguments_are_handed_out_in_work_that_grows_with_them(parser_id: str) -> None:
    begun, _, behind = WRITTEN[parser_id].partition("Paris")
    parser = make_tool_parser(parser_id)

    def text(length: int) -> str:
        return begun + ("a word and\\n   <another, " * length)[:length] + behind

    assert grown(lambda: parser.new_stream(TOOLS, "immediate"), text) < 2.3


def thoughts(parser_id: str) -> Iterator[Callable[[int], str]]:
    ((start, end),) = make_reasoning_parser(parser_id).markers
    yield lambda length: start + (PROSE * length)[:length]
    yield lambda length: start + "a" + " " * length
    yield lambda length: " " * length
    yield lambda length: f"{start}a{end}" + "\n" * length
    yield lambda length: f"{start}a{end}<answer><response>b" + "\n" * length
    yield lambda length: f"{start}a{end}<answer>b</answer>" + "\n" * length


@pytest.mark.parametrize("parser_id", sorted(set(REASONING_PARSERS) - {"null"}))
def test_twice_the_thought_is_twice_the_work(parser_id: str) -> None:
    parser = make_reasoning_parser(parser_id)
    factors = [grown(parser.new_stream, text) for text in thoughts(parser_id)]
    factors += [grown(lambda: parser.new_stream(starts_open=True), lambda length: "\n" * length)]
    assert max(factors) < 2.3


@pytest.mark.parametrize(
    "parser_id", two_of_a_class(sorted(set(WRITTEN) - {"granite_json", "functionary_v32"}))
)
def test_many_calls_in_one_piece_are_not_copied_for_each(parser_id: str) -> None:
    def work(calls: int) -> int:
        text = "\n".join([WRITTEN[parser_id]] * calls)
        return copied(make_tool_parser(parser_id).new_stream(TOOLS), text, len(text))

    assert work(120) < 2.3 * work(60)


def test_a_section_of_thousands_of_calls_is_read() -> None:
    written = WRITTEN["deepseek_v31"]
    start, end = make_tool_parser("deepseek_v31").markers[0]
    call = written.removeprefix(start).removesuffix(end)
    stream = make_tool_parser("deepseek_v31").new_stream(TOOLS)
    text = start + call * 4_000 + end
    events = [event for at in range(0, len(text), 64) for event in stream.feed(text[at : at + 64])]
    assert len(collect_calls([*events, *stream.finish()]).calls) == 4_000


def test_a_stretch_of_text_is_not_tried_from_each_of_its_markers() -> None:
    for text in ('<tool_call>{"a' * 5_000, '<tool_call>{"a' * 5_000 + "</tool_call>" * 5_000):
        stream = make_tool_parser("hermes_json").new_stream(TOOLS)
        found = collect_calls([*stream.feed(text), *stream.finish()])
        assert (found.calls, found.text) == ((), text)
        assert stream.malformed_calls < 100


@pytest.mark.parametrize(
    ("parser_id", "text"),
    [
        ("mlx_lm.gemma4", "<|tool_call>call:get_weather{city:a" + " " * 100_000 + "}<tool_call|>"),
        ("harmony", "<|channel|>commentary to=functions." + "x" * 100_000),
        ("mlx_lm.kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>" + " " * 100_000 + "<|tool"),
        ("mlx_lm.pythonic", f"<|tool_call_start|>[get_weather(days={'1' * 100_000}a)]<|tool_call_end|>"),
    ],
)
def test_a_model_that_repeats_a_character_costs_little(parser_id: str, text: str) -> None:
    stream = make_tool_parser(parser_id).new_stream(TOOLS)
    began = time.thread_time()
    found = collect_calls([*stream.feed(text), *stream.finish()])
    assert found.calls or found.text == text
    assert time.thread_time() - began < 10  # of about 0.05


@pytest.mark.soak
@pytest.mark.parametrize("parser_id", WRITTEN)
def test_a_million_characters_in_pieces_of_four(parser_id: str) -> None:
    for text in unfinished(parser_id).values():
        stream = make_tool_parser(parser_id).new_stream(TOOLS)
        whole = text(1_000_000)
        events = [event for at in range(0, len(whole), 4) for event in stream.feed(whole[at : at + 4])]
        found = collect_calls([*events, *stream.finish()])
        framed = parser_id in ("harmony", "mlx_lm.muse_spark")  # What stands between messages is no text.
        assert framed or found.calls or found.text == whole
