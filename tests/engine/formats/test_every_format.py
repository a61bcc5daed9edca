"""Rules that hold for every format in the list: a new one is tested as soon as it is there."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

from greenroom.engine.formats.call_format import TemplateWords
from greenroom.engine.formats.registry import FORMATS, detect_tool_parser, make_tool_parser
from greenroom.engine.parsers.offered_tools import schema_types
from greenroom.engine.parsers.parser import TOOL_NAME, ParsedCall
from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls, collect_calls
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WEATHER, WRITTEN
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract

WORDS = [(known.parser_id, words) for known in FORMATS for words in known.templates]
CLOSING = re.compile(r"</[^<>]+>|<\|close\|>\w+<\|sep\|>")
WRITE = Tool(
    "write",
    parameters={
        "type": "object",
        "properties": {
            "content": {"type": "string"},
            "limit": {"type": "integer"},
            "path": {"type": "string"},
            "flag": {"type": "boolean"},
        },
        "required": ["content"],
    },
)
GIVEN = {"content": "a\nb", "limit": 5, "path": "a.md", "flag": True}
OPENINGS = [
    (known.parser_id, opening)
    for known in FORMATS
    if getattr(known.new_parser(), "body_start", None) is not None
    for opening, _ in known.new_parser().markers
]


@pytest.mark.parametrize(("parser_id", "words"), WORDS)
def test_a_template_with_its_words_is_of_the_format(parser_id: str, words: TemplateWords) -> None:
    assert detect_tool_parser(" ".join(words.present)) == parser_id


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_a_call_with_a_repeated_argument_is_text(parser_id: str) -> None:
    text = WRITTEN[parser_id].replace("days", "city")
    assert text.count("city") == 2
    found = extract(parser_id, text)
    assert (found.calls, found.text) == ((), text)


@pytest.mark.parametrize("parser_id", WRITTEN)
def test_arguments_that_are_no_object_are_rendered_as_they_are(parser_id: str) -> None:
    assert "[[1, 2]]" in (make_tool_parser(parser_id).render("f", "[[1, 2]]") or "[[1, 2]]")


def test_a_schema_that_leads_back_to_itself_in_many_ways_has_the_types_it_states() -> None:
    again = {"$ref": "#/$defs/a"}
    root = {"$defs": {"a": {"anyOf": [*[again] * 20, {"type": "string"}, {"oneOf": [{"enum": [1, None]}]}]}}}
    assert schema_types(again, root) == {"string", "integer", "number", "null"}


def rendered(parser_id: str, *calls: dict[str, Any]) -> str:
    written = [ParsedCall("write", json.dumps(arguments)) for arguments in calls]
    return make_tool_parser(parser_id).render_all(written) or ""


def without_ends(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without end tags that a string keeps as a part of its text."""
    return {key: CLOSING.sub("", it).strip() if isinstance(it, str) else it for key, it in arguments.items()}


TAGGED = [known for known in WRITTEN if len(CLOSING.findall(rendered(known, GIVEN))) > len(GIVEN)]
"""Formats that write each argument between tags."""


def test_the_formats_with_tags_are_found() -> None:
    assert {"qwen3_coder", "seed_oss", "deepseek_dsml", "step3", "glm4_native", "hunyuan_v3"} < {*TAGGED}
    assert len(TAGGED) >= 11


@pytest.mark.parametrize("parser_id", TAGGED)
def test_a_missing_or_wrong_end_tag_swallows_no_argument(parser_id: str) -> None:
    for calls in ([GIVEN], [{"content": "x"}, GIVEN], [{"limit": 1, "content": "x"}, {"content": "y"}]):
        text = rendered(parser_id, *calls)
        assert [json.loads(call.arguments) for call in extract(parser_id, text, [WRITE]).calls] == calls
        for tag in CLOSING.finditer(text):
            for wrong in {"", "</b>", *CLOSING.findall(text)} - {tag.group()}:
                broken = text[: tag.start()] + wrong + text[tag.end() :]
                for call in extract(parser_id, broken, [WRITE]).calls:
                    assert without_ends(json.loads(call.arguments)) in calls, broken


@pytest.mark.parametrize("parser_id", TAGGED)
def test_a_value_that_mentions_tags_in_code_stays_a_value(parser_id: str) -> None:
    for name in ("path", "other"):
        one, none = rendered(parser_id, {name: "VALUE"}), rendered(parser_id, {})
        begin = next(at for at, pair in enumerate(zip(one, none, strict=False)) if len({*pair}) > 1)
        opening, closing = one[len(one[:begin].rstrip("<|")) : one.index("VALUE")], CLOSING.findall(one)[0]
        for code in (f"if '{opening}' in text:", f"cut(text, '{closing}')", f"'{opening}' + x + '{closing}'"):
            given = {**GIVEN, "content": code}
            (call,) = extract(parser_id, rendered(parser_id, given), [WRITE]).calls
            assert json.loads(call.arguments) == given


@pytest.mark.parametrize(("parser_id", "opening"), OPENINGS)
def test_a_marker_that_a_text_only_mentions_is_text_at_once(parser_id: str, opening: str) -> None:
    stream = make_tool_parser(parser_id).new_stream(TOOLS)
    events = stream.feed(f"{opening}? That opens a call.")
    assert collect_calls(events).text.startswith(f"{opening}? That opens")


@pytest.mark.parametrize("name", ["a:b", "ns::f", "mcp/find", "/x", "a.b-c", "-x", "1a", "é"])
@pytest.mark.parametrize("parser_id", WRITTEN)
def test_every_name_that_a_grammar_writes_is_read(parser_id: str, name: str) -> None:
    assert re.fullmatch(TOOL_NAME, name)
    for arguments in ("{}", '{"city": "Paris"}'):
        text = make_tool_parser(parser_id).render_all([ParsedCall(name, arguments)]) or ""
        found = extract(parser_id, text, [attrs.evolve(WEATHER, name=name)])
        assert found == ExtractedCalls((ParsedCall(name, arguments),), "")


MARKED = [(known, start) for known in WRITTEN for start, _ in make_tool_parser(known).markers[:1]]


@pytest.mark.parametrize(("parser_id", "start"), MARKED)
def test_a_marker_left_over_before_a_call_is_dropped_and_before_text_is_text(
    parser_id: str, start: str
) -> None:
    if WRITTEN[parser_id].startswith(start):
        for space in ("", "\n", " \n\n"):
            found = extract(parser_id, f"Look.\n{start}{space}{start}{space}{WRITTEN[parser_id]}")
            assert (len(found.calls), found.text) == (1, "Look."), space
        mentioned = f"Write {start} {start} and {start}\n{start}"
        assert extract(parser_id, mentioned).text == mentioned


@pytest.mark.parametrize("parser_id", ["qwen3_coder", "seed_oss", "hermes_json"])
def test_a_block_opened_again_before_its_end_holds_both_calls(parser_id: str) -> None:
    start, end = make_tool_parser(parser_id).markers[0]
    body = WRITTEN[parser_id].removeprefix(start).removesuffix(end)
    found = extract(parser_id, f"{start}{body}{start}{body}{end}\nDone.")
    assert (len(found.calls), found.text) == (2, "Done.")
