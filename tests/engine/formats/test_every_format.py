"""Rules that hold for every format in the list: a new one is tested as soon as it is there."""

from __future__ import annotations

import pytest

from greenroom.engine.formats.description.call_format import TemplateWords
from greenroom.engine.formats.detection import detect_tool_parser
from greenroom.engine.formats.registry import FORMATS, make_tool_parser
from greenroom.tests.support.parsers.model_outputs import collect_calls
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN
from greenroom.tests.support.parsers.tool_call_examples import extract_in_any_pieces as extract

WORDS = [(known.parser_id, words) for known in FORMATS for words in known.templates]
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


@pytest.mark.parametrize(("parser_id", "opening"), OPENINGS)
def test_a_marker_that_a_text_only_mentions_is_text_at_once(parser_id: str, opening: str) -> None:
    stream = make_tool_parser(parser_id).new_stream(TOOLS)
    events = stream.feed(f"{opening}? That opens a call.")
    assert collect_calls(events).text.startswith(f"{opening}? That opens")
