"""Parser output depends on the text only, never on how it was split."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.engine.formats.registry import (
    REASONING_PARSERS,
    make_reasoning_parser,
    make_tool_parser,
)
from greenroom.engine.parsers.json_values import JsonScanner
from greenroom.engine.parsers.parser import (
    CallArguments,
    CallEnd,
    CallName,
    ParserEvent,
    PlainText,
    ReasoningText,
    Release,
    ToolCallStream,
)
from greenroom.tests.support.parsers.model_outputs import collect_calls, extract_reasoning
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN, two_of_a_class

PARSERS = {parser_id: make_tool_parser(parser_id) for parser_id in [*WRITTEN, "null"]}


def merged(events: list[ParserEvent]) -> list[ParserEvent]:
    """Return the events with adjacent pieces of text, or of arguments, joined."""
    joined: list[ParserEvent] = []
    for event in events:
        match joined[-1:], event:
            case [PlainText(before)], PlainText(text):
                joined[-1] = PlainText(before + text)
            case [CallArguments(before)], CallArguments(text):
                joined[-1] = CallArguments(before + text)
            case _:
                joined.append(event)
    return joined


def read(stream: ToolCallStream, pieces: list[str]) -> tuple[list[ParserEvent], int]:
    events = [event for piece in pieces for event in stream.feed(piece)]
    return merged([*events, *stream.finish()]), stream.malformed_calls


def cut(text: str, boundaries: list[int]) -> list[str]:
    at = sorted({0, len(text), *(boundary % (len(text) + 1) for boundary in boundaries)})
    return [text[start:end] for start, end in pairwise(at)]


def outputs(parser_id: str) -> st.SearchStrategy[str]:
    """Generate difficult texts: complete and partial calls, markers, braces, white space, words."""
    written = WRITTEN.get(parser_id, "<tool_call>{}</tool_call>")
    torn = st.integers(0, len(written)).map(lambda end: written[:end])
    rest = st.integers(0, len(written)).map(lambda start: written[start:])
    markers = st.sampled_from([m for pair in PARSERS[parser_id].markers for m in pair] or ["<"])
    other = st.sampled_from(["\n", " ", "\n\n", "<", "{", '"', "\\", "}", ";", "word", "</tool_call>", "é"])
    wrong = st.just(written.replace("get_weather", "get_whether"))
    return st.lists(st.just(written) | torn | rest | markers | other | wrong, max_size=8).map("".join)


BOUNDARIES = st.lists(st.integers(0, 10_000), max_size=12)


RELEASES: tuple[Release, ...] = ("validated", "immediate")


@pytest.mark.parametrize("parser_id", two_of_a_class(PARSERS))
@settings(max_examples=10)
@given(data=st.data())
def test_calls_do_not_depend_on_boundaries(parser_id: str, data: st.DataObject) -> None:
    text = data.draw(outputs(parser_id))
    pieces = cut(text, data.draw(BOUNDARIES))
    parser = PARSERS[parser_id]
    for release in RELEASES:
        whole = read(parser.new_stream(TOOLS, release), [text])
        assert read(parser.new_stream(TOOLS, release), pieces) == whole
        assert read(parser.new_stream(TOOLS, release), list(text)) == whole
        found = collect_calls(whole[0])
        # Text between messages is dropped.
        if not found.calls and release == "validated" and parser_id not in ("harmony", "gigachat3"):
            assert found.text == text


THOUGHTS = ["<think>", "</think>", "<thi", "nk>", "</th", "\n", "\n\n", "  ", "word", "Ω", "<", "<tool_call>"]


@pytest.mark.parametrize("parser_id", REASONING_PARSERS)
@given(data=st.data(), starts_open=st.booleans())
def test_thoughts_do_not_depend_on_boundaries(parser_id: str, data: st.DataObject, starts_open: bool) -> None:
    parser = make_reasoning_parser(parser_id)
    ((start, end),) = parser.markers or (("<think>", "</think>"),)
    fragments = [part.replace("<think>", start).replace("</think>", end) for part in THOUGHTS]
    text = "".join(data.draw(st.lists(st.sampled_from(fragments), max_size=10)))
    whole = extract_reasoning(parser, text, starts_open)
    for pieces in (cut(text, data.draw(BOUNDARIES)), list(text)):
        stream = parser.new_stream(starts_open)
        events = [event for piece in pieces for event in stream.feed(piece)] + stream.finish()
        thought = "".join(event.text for event in events if isinstance(event, ReasoningText))
        answer = "".join(event.text for event in events if isinstance(event, PlainText))
        assert (thought or None, answer) == (whole.reasoning, whole.text)


@pytest.mark.parametrize("parser_id", PARSERS)
def test_ordinary_text_is_not_held_back(parser_id: str) -> None:
    stream = PARSERS[parser_id].new_stream(TOOLS)
    for piece in ["It", " is", " 3", "<", "4", " and", " a<t", "b", " [T", "ax", " <|x", "."]:
        begun = piece in ("<", " a<t", " [T", " <|x")
        shown = "".join(event.text for event in stream.feed(piece) if isinstance(event, PlainText))
        assert begun or shown.endswith(piece)


def test_whitespace_waits_for_what_follows() -> None:
    stream = PARSERS["hermes_json"].new_stream(TOOLS)
    assert stream.feed("Yes.\n") == [PlainText("Yes.")]
    assert stream.feed("\n") == []
    assert stream.feed("No") == [PlainText("\n\nNo")]
    assert stream.feed(" <tool_") == []
    assert stream.feed("box>") == [PlainText(" <tool_box>")]


def test_a_call_is_handed_out_when_its_block_has_proved_right() -> None:
    stream = PARSERS["hermes_json"].new_stream(TOOLS)
    call = WRITTEN["hermes_json"]
    assert stream.feed(call[:-1]) == []
    name, arguments, end = stream.feed(call[-1])
    assert (name, end) == (CallName("get_weather"), CallEnd())
    assert arguments == CallArguments('{"city": "Paris", "days": 2}')


@pytest.mark.parametrize("parser_id", ["hermes_json", "glm4_xml", "glm4_native", "llama_xml", "mistral"])
def test_text_around_a_call_is_kept_while_it_is_written(parser_id: str) -> None:
    stream = PARSERS[parser_id].new_stream(TOOLS, "immediate")
    call = WRITTEN[parser_id]
    torn = call.index("Paris")
    begun = stream.feed("Well. " + call[:torn])
    assert begun == [PlainText("Well."), CallName("get_weather"), CallArguments('{"city": "')]
    rest = merged([*stream.feed(call[torn:] + "\nOk."), *stream.finish()])
    assert rest == [CallArguments('Paris", "days": 2}'), CallEnd(), PlainText(" Ok.")]


# Python behind Llama's tag is never forced, and parsed once it is complete.
@pytest.mark.parametrize("parser_id", sorted(WRITTEN.keys() - {"llama_python"}))
def test_a_call_is_handed_out_while_it_is_written(parser_id: str) -> None:
    stream = PARSERS[parser_id].new_stream(TOOLS, "immediate")
    call = WRITTEN[parser_id]
    events, shown = list[ParserEvent](), ""
    for at, character in enumerate(call):
        events += stream.feed(character)
        if call[at - 4 : at + 1] == "Paris":
            shown = "".join(event.fragment for event in events if isinstance(event, CallArguments))
    assert shown == '{"city": "Paris'
    whole = [CallName("get_weather"), CallArguments('{"city": "Paris", "days": 2}'), CallEnd()]
    assert merged([*events, *stream.finish()]) == whole


def test_a_call_that_is_cut_while_it_is_written_ends_there() -> None:
    stream = PARSERS["hermes_json"].new_stream(TOOLS, "immediate")
    call = WRITTEN["hermes_json"]
    stream.feed(call[: call.index("Paris")])
    assert stream.finish() == [CallEnd()]


def test_the_scanner_sees_escapes_across_boundaries() -> None:
    text = json.dumps({"a": '"}\\', "b": {"c": ["\\"]}})
    scanner = JsonScanner()
    assert [scanner.feed(character) for character in text] == [-1] * (len(text) - 1) + [1]


@settings(max_examples=10)
@given(
    value=st.recursive(
        st.dictionaries(st.text(), st.text(), max_size=2), lambda inner: st.dictionaries(st.text(), inner)
    ),
    boundaries=BOUNDARIES,
)
def test_the_scanner_finds_the_end_of_an_object(value: dict[str, object], boundaries: list[int]) -> None:
    text = json.dumps(value)
    scanner = JsonScanner()
    seen = 0
    for piece in cut(text + '}"', boundaries):
        end = scanner.feed(piece)
        if end >= 0:
            assert seen + end == len(text)
            return
        seen += len(piece)
    raise AssertionError("the end was not found")
