"""Response templates of tokenizers are tried at load, and read calls that no parser of ours reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.messages import Tool
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.parsers.model_outputs import ParsedAnswer, parse_answer
from greenroom.tests.support.templates.chat_adapters import Folder

WEATHER = Tool("get_weather", "Of a city", {"type": "object", "properties": {"days": {"type": "integer"}}})
CALL_OF = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
CALLS = {
    "open_pattern": r"<mcp>(?P<name>\w+)\(",
    "close": ")</mcp>",
    "content": "json",
    "repeats": True,
    "transform": CALL_OF,
}
ANSWERS = {"start_anchor": "<|im_start|>assistant\n", "fields": {"content": {}, "tool_calls": CALLS}}
WRITTEN = "<mcp>{{ call.function.name }}({{ call.function.arguments | tojson }})</mcp>"
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def made(folder: Folder, response_template: Any, calls: str = WRITTEN, template: str = TEMPLATE) -> Adapter:
    """Return the adapter of a model whose tokenizer ships a response template."""
    changes = {"chat_template": template.replace("CALL", calls), "response_template": response_template}
    record = CapabilityRecord("text", "default", "llama", 4096)
    return make_adapter(record, load_tokenizer(folder("qwen", **changes)), Settings())


def read(adapter: Adapter, *pieces: str) -> ParsedAnswer:
    prepared = PreparedPrompt((1,), frozenset(), 99, tools=(WEATHER,))
    return parse_answer(adapter.new_stream_processor(prepared, lambda: "call_1"), pieces)


def cuts(text: str) -> Iterator[list[str]]:
    yield [*text]
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))


@pytest.fixture(scope="module")
def mcp(folder: Folder) -> Adapter:
    return made(folder, ANSWERS)


def test_calls_that_no_parser_of_ours_reads_are_read_by_the_response_template(mcp: Adapter) -> None:
    assert (mcp.choice.tool_parser.parser_id, mcp.choice.calls_by) == (
        "response_template",
        "response template",
    )
    assert mcp.choice.native_tools
    answer = read(mcp, 'Look: <mcp>get_weather({"days": 2})</mcp> <mcp>get_weather({"days": 3})</mcp>')
    assert answer.text == "Look:"
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("get_weather", '{"days": 2}'),
        ("get_weather", '{"days": 3}'),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'Look: <mcp>get_weather({"days": 2})</mcp> So.',
        "Look: <mcp>get_weather({broken)</mcp> So.",
        'Look: <mcp>other({"days": 2})</mcp> So.',
        'Look: <mcp>get_weather({"days": ',
        "The tag <mcp> opens a call.",
    ],
)
def test_the_result_depends_on_the_whole_text_only_and_no_marker_is_lost(mcp: Adapter, text: str) -> None:
    whole = read(mcp, text)
    assert all(read(mcp, *pieces) == whole for pieces in cuts(text))
    assert whole.tool_calls or whole.text == text


def test_a_parser_of_ours_goes_before_the_response_template(folder: Folder) -> None:
    hermes = "<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    with capture_logs() as logs:
        adapter = made(folder, ANSWERS, hermes)
    assert (adapter.choice.tool_parser.parser_id, logs) == ("hermes_json", [])


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        ({"open_pattern": "(" * 30 + "a" + "+)" * 30}, "nested too deep"),
        ({"open_pattern": "a" * 2_000}, "too long"),
        ({"open_pattern": "("}, "invalid open_pattern"),
        (
            {"content": "xml-inline", "content_args": {"tag_pattern": r"(?P<key>(?:.|.)+)[%&]"}},
            "take too long",
        ),
        ({"close": ")"}, "does not read"),
        ({"transform": {"function": {"name": "{name}"}}}, "does not read"),
    ],
    ids=["nested", "long", "broken", "slow", "leaks", "no arguments"],
)
def test_one_that_is_slow_or_wrong_is_ignored_with_one_warning(
    folder: Folder, hostile: dict[str, Any], reason: str
) -> None:
    fields = {"content": {}, "tool_calls": {**CALLS, **hostile}}
    with capture_logs() as logs:
        adapter = made(folder, {**ANSWERS, "fields": fields})
    assert adapter.choice.calls_by == "fallback"
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("response template ignored", "warning")
    ]
    assert reason in logs[0]["reason"]


def test_one_that_is_slow_on_an_answer_is_given_up_for_that_answer(folder: Folder) -> None:
    fields = {"content": {}, "tool_calls": {**CALLS, "open_pattern": r"<mcp>(?P<name>(?:\w|\w)+)\("}}
    adapter = made(folder, {**ANSWERS, "fields": fields})
    text = f"<mcp>{'a' * 60}!(" + ' <mcp>get_weather({"days": 2})</mcp>'
    with capture_logs() as logs:
        answer = read(adapter, *text)
    assert (answer.text, answer.tool_calls) == (text, ())
    assert [entry["event"] for entry in logs] == ["response template given up for an answer"]
    assert read(adapter, '<mcp>get_weather({"days": 2})</mcp>').tool_calls


def test_what_was_read_before_it_is_given_up_stays(folder: Folder) -> None:
    fields = {"content": {}, "tool_calls": {**CALLS, "open_pattern": r"<mcp>(?P<name>(?:\w|\w)+)\("}}
    adapter = made(folder, {**ANSWERS, "fields": fields})
    text = f'Look: <mcp>get_weather({{"days": 2}})</mcp> So <mcp>{"a" * 60}!('
    answer = read(adapter, text)
    assert answer == read(adapter, *text)
    assert (answer.text, len(answer.tool_calls)) == (f"Look: So <mcp>{'a' * 60}!(", 1)


def test_an_expression_that_matches_nothing_again_and_again_ends_the_search(folder: Folder) -> None:
    patterns = {"open_pattern": r"<mcp>(?P<name>\w+)\(|(?=ZZ)", "close_pattern": r"\)</mcp>|(?=ZZ)"}
    calls = {key: value for key, value in {**CALLS, **patterns}.items() if key != "close"}
    adapter = made(folder, {**ANSWERS, "fields": {"content": {}, "tool_calls": calls}})
    assert adapter.choice.calls_by == "response template"
    with capture_logs() as logs:
        assert read(adapter, "Hello ZZ there").text == "Hello ZZ there"
    assert [entry["reason"] for entry in logs if "given up" in entry["event"]] == [
        "an expression matches empty text"
    ]


def test_a_call_behind_a_very_long_text_is_read(mcp: Adapter) -> None:
    text = "word " * 60_000
    pieces = (text[at : at + 500] for at in range(0, len(text), 500))
    answer = read(mcp, *pieces, '<mcp>get_weather({"days": 2})</mcp>')
    assert (answer.text, len(answer.tool_calls)) == (text.rstrip(), 1)


@pytest.mark.parametrize(
    ("text", "answer"),
    [("No marker.", "No marker."), ("<answer>Hi</answer>", "Hi"), ("\n<answer>Hi</answer> more", "Hi")],
)
def test_an_answer_without_its_markers_is_text(folder: Folder, text: str, answer: str) -> None:
    fields = {"content": {"open": "<answer>", "close": "</answer>"}, "tool_calls": CALLS}
    written = "{% if m.content and m.role == 'assistant' %}<answer>{{ m.content }}</answer>{% else %}"
    template = TEMPLATE.replace("{{ m.content or '' }}", written + "{{ m.content or '' }}{% endif %}")
    adapter = made(folder, {**ANSWERS, "fields": fields}, template=template)
    assert adapter.choice.calls_by == "response template"
    assert read(adapter, text).text == read(adapter, *text).text == answer


@pytest.mark.parametrize("spec", [[], {}, {"fields": {}}, {"fields": {"content": {}}}, "text", {"fields": 3}])
def test_what_is_no_response_template_is_ignored_too(folder: Folder, spec: Any) -> None:
    with capture_logs() as logs:
        assert made(folder, spec).choice.calls_by == "fallback"
    assert len(logs) == 1
