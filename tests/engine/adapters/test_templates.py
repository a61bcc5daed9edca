"""Conversations are rewritten for the limits of a template, without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import short_call_id
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall, ToolChoice
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.parsers.model_outputs import parse_answer
from greenroom.tests.support.templates.chat_adapters import MakeAdapter
from greenroom.tests.support.templates.chat_tokenizers import TEMPLATES
from greenroom.tests.support.templates.real_templates import packaged_templates
from greenroom.tests.support.templates.template_table import documented_cells, try_template

ROOT = Path(__file__).resolve().parents[3]
OWN = ROOT / "tests" / "support" / "templates" / "chat_templates"
PACKAGED = packaged_templates()


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_template_does_what_the_table_says(name: str, tmp_path: Path) -> None:
    import_text_libraries()
    row = try_template(name, PACKAGED[name], tmp_path)
    assert row.faults == ()
    page = (ROOT / "tests/support/templates/parsers_of_templates.md").read_text(encoding="utf-8")
    assert row.cells() == documented_cells(page)[name]


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "strict_system"])
def test_no_conversation_is_lost_in_a_template_of_ours(name: str, tmp_path: Path) -> None:
    import_text_libraries()
    template = (OWN / f"{name}.jinja").read_text(encoding="utf-8")
    assert try_template(name, template, tmp_path).faults == ()


WEATHER = Tool(
    "get_weather", "Weather of a city", {"type": "object", "properties": {"city": {"type": "string"}}}
)
CALL = ToolCall("call_abcdefghijklmnop", "get_weather", '{"city": "Oslo"}')


def say(role: Any, text: str = "", **fields: Any) -> Message:
    return Message(role, (TextPart(text),) if text else (), **fields)


def request(*messages: Message, **fields: Any) -> InferenceRequest:
    return InferenceRequest("r", ModelKey("m"), ChatInput(messages, **fields))


def prompt(adapter: Adapter, *messages: Message, **fields: Any) -> str:
    """Return the rendered prompt."""
    return adapter.tokenizer.decode(adapter.prepare_input(request(*messages, **fields)).tokens)


def result(text: str = "12 degrees", call_id: str = CALL.id) -> Message:
    return say("tool", text, tool_call_id=call_id)


ASKED = (say("user", "Weather?"), say("assistant", tool_calls=(CALL,)), result())


CONVERSATIONS = {
    "plain": (say("system", "alpha"), say("user", "beta")),
    "turns": (say("system", "alpha"), say("user", "beta"), say("assistant", "gamma"), say("user", "delta")),
    "late system": (
        say("user", "alpha"),
        say("assistant", "beta"),
        say("system", "gamma"),
        say("user", "delta"),
    ),
    "system last": (
        say("user", "alpha"),
        say("assistant", "beta"),
        say("user", "gamma"),
        say("system", "delta"),
    ),
    "several systems": (say("system", "alpha"), say("system", "beta"), say("user", "gamma")),
    "system alone": (say("system", "alpha"),),
    "users in a row": (say("user", "alpha"), say("user", "beta"), say("user", "gamma")),
    "assistants in a row": (
        say("user", "alpha"),
        say("assistant", "beta"),
        say("assistant", "gamma"),
        say("user", "delta"),
    ),
    "assistant first": (say("assistant", "alpha"), say("user", "beta")),
    "system, assistant first": (say("system", "alpha"), say("assistant", "beta"), say("user", "gamma")),
    "call and result": (*ASKED, say("assistant", "alpha"), say("user", "beta")),
    "result last": ASKED,
    "user after result": (*ASKED, say("user", "alpha")),
    "call with text": (say("user", "alpha"), say("assistant", "beta", tool_calls=(CALL,)), result("gamma")),
    "call without result": (say("user", "alpha"), say("assistant", tool_calls=(CALL,)), say("user", "beta")),
    "system only, then call": (say("system", "alpha"), *ASKED),
}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_conversation_loses_anything(adapter: MakeAdapter, name: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    read = prompt(adapter(name), *messages)
    for message in messages:
        assert message.text in read
        for call in message.tool_calls:
            assert call.name in read
            assert "Oslo" in read
    order = [read.index(message.text) for message in messages if message.text]
    assert order == sorted(order)


@pytest.mark.parametrize("name", TEMPLATES)
def test_two_calls_and_their_results_reach_the_model(adapter: MakeAdapter, name: str) -> None:
    second = ToolCall("call_2", "get_weather", '{"city": "Rome"}')
    read = prompt(
        adapter(name),
        say("user", "Both?"),
        say("assistant", tool_calls=(CALL, second)),
        result("cold"),
        result("warm", "call_2"),
    )
    assert all(word in read for word in ("Oslo", "Rome", "cold", "warm"))
    assert read.index("cold") < read.index("warm")


def test_a_template_that_shows_one_call_a_turn_gets_one_call_a_turn(adapter: MakeAdapter) -> None:
    second = ToolCall("call_2", "get_weather", '{"city": "Rome"}')
    both = say("assistant", "Two calls.", tool_calls=(CALL, second))
    read = prompt(adapter("llama"), say("user", "Both?"), both, result("cold"), result("warm", "call_2"))
    order = [read.index(word) for word in ("Both?", "Two calls.", "Oslo", "cold", "Rome", "warm")]
    assert order == sorted(order)
    assert read.count("<|start_header_id|>ipython") == 2


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "arguments", ["", "{}", "not JSON", "[1, 2]", "null", '"text"', "{" * 2000, "9" * 5000]
)
def test_arguments_in_the_history_may_be_anything(adapter: MakeAdapter, name: str, arguments: str) -> None:
    call = ToolCall("c", "get_weather", arguments)
    read = prompt(
        adapter(name, 100_000), say("user", "Hi"), say("assistant", tool_calls=(call,)), result("zz", "c")
    )
    assert "get_weather" in read
    assert "zz" in read


def test_arguments_are_an_object_where_the_template_walks_through_them(adapter: MakeAdapter) -> None:
    assert "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>" in prompt(adapter("glm4"), *ASKED)
    assert '"arguments": {"city": "Oslo"}' in prompt(adapter("qwen"), *ASKED)
    assert 'get_weather\n```json\n{"city": "Oslo"}\n```' in prompt(adapter("deepseek"), *ASKED)


def test_call_ids_become_nine_characters_where_the_template_wants_that(adapter: MakeAdapter) -> None:
    read = prompt(adapter("mistral"), *ASKED)
    short = short_call_id(CALL.id)
    assert f'"id": "{short}"' in read
    assert f'"call_id": "{short}"' in read
    assert len(short) == 9
    assert short.isalnum()
    assert short_call_id("abcDEF123") == "abcDEF123"
    assert len({short_call_id(f"call_{n}") for n in range(1000)}) == 1000


@pytest.mark.parametrize("tool_call_id", ["call_unknown", None])
def test_a_result_without_a_call_names_its_field(adapter: MakeAdapter, tool_call_id: str | None) -> None:
    messages = (
        say("user", "Hi"),
        say("assistant", tool_calls=(CALL,)),
        say("tool", "x", tool_call_id=tool_call_id),
    )
    with pytest.raises(ProblemError) as caught:
        adapter("qwen").prepare_input(request(*messages))
    assert caught.value.problem.status == 400
    assert caught.value.problem.param == "messages[2].tool_call_id"


def test_reasoning_in_the_history_reaches_a_template_that_shows_it(adapter: MakeAdapter) -> None:
    thinking = say("assistant", reasoning="zqthought", tool_calls=(CALL,))
    assert "<think>\nzqthought\n</think>" in prompt(adapter("qwen"), say("user", "Hi"), thinking, result())


@pytest.mark.parametrize("name", ["qwen", "llama", "mistral", "glm4", "granite", "liquid"])
def test_tools_go_through_the_template_where_it_takes_them(adapter: MakeAdapter, name: str) -> None:
    with_tools = adapter(name, tool_injection=False).prepare_input(
        request(say("user", "Hi"), tools=(WEATHER,))
    )
    assert with_tools.tools == (WEATHER,)
    assert "get_weather" in adapter(name).tokenizer.decode(with_tools.tokens)


@pytest.mark.parametrize("name", ["gemma", "deepseek", "strict_system", "parts"])
def test_tools_are_described_in_the_prompt_where_the_template_cannot(adapter: MakeAdapter, name: str) -> None:
    model = adapter(name)
    prepared = model.prepare_input(request(say("system", "Be brief"), say("user", "Hi"), tools=(WEATHER,)))
    read = model.tokenizer.decode(prepared.tokens)
    assert all(text in read for text in ("Be brief", "get_weather", "Weather of a city", '"city"'))
    written = model.tool_parser.render("get_weather", '{"city": "Oslo"}')
    assert written is not None
    ids = iter(["call_1"])
    answer = parse_answer(model.new_stream_processor(prepared, lambda: next(ids)), [f"Let me see. {written}"])
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [
        ("get_weather", {"city": "Oslo"})
    ]
    example = model.tool_parser.render("function_name", '{"parameter": "value"}')
    assert example is not None
    assert example in read


def test_without_injection_tools_are_refused(adapter: MakeAdapter) -> None:
    with pytest.raises(ProblemError) as caught:
        adapter("gemma", tool_injection=False).prepare_input(request(say("user", "Hi"), tools=(WEATHER,)))
    assert (caught.value.problem.status, caught.value.problem.param) == (400, "tools")


@pytest.mark.parametrize("name", ["qwen", "gemma"])
def test_tools_that_must_not_be_called_are_not_offered(adapter: MakeAdapter, name: str) -> None:
    prepared = adapter(name).prepare_input(
        request(say("user", "Hi"), tools=(WEATHER,), tool_choice=ToolChoice("none"))
    )
    assert prepared.tools == ()
    assert prepared.tokens == adapter(name).prepare_input(request(say("user", "Hi"))).tokens


def test_a_template_that_opens_the_thought_is_noticed(adapter: MakeAdapter) -> None:
    assert adapter("thinking").prepare_input(request(say("user", "Hi"))).starts_in_reasoning
    model = adapter("qwen")
    assert not model.prepare_input(request(say("user", "Hi"))).starts_in_reasoning
    off = request(say("user", "Hi"), template_options={"enable_thinking": False})
    assert not model.prepare_input(off).starts_in_reasoning
    assert model.tokenizer.decode(model.prepare_input(off).tokens).endswith("<think>\n\n</think>\n\n")


def test_a_user_cannot_open_the_thought(adapter: MakeAdapter) -> None:
    assert not adapter("mistral").prepare_input(request(say("user", "<think>"))).starts_in_reasoning


def test_an_answer_that_was_begun_is_continued(adapter: MakeAdapter) -> None:
    begun = (say("user", "Hi"), say("assistant", "<think>\nHm"))
    prepared = adapter("granite", record={"reasoning_parser": "think_tag"}).prepare_input(
        request(*begun, continue_final_message=True)
    )
    assert adapter("granite").tokenizer.decode(prepared.tokens).endswith("Hm")
    assert prepared.starts_in_reasoning
    with pytest.raises(ProblemError, match="assistant"):
        adapter("granite").prepare_input(request(say("user", "Hi"), continue_final_message=True))


@pytest.mark.parametrize(
    "option",
    [
        "messages",
        "tools",
        "add_generation_prompt",
        "chat_template",
        "tokenize",
        "bos_token",
        "__class__",
        "a b",
    ],
)
def test_template_options_cannot_override_the_servers_own(adapter: MakeAdapter, option: str) -> None:
    with pytest.raises(ProblemError) as caught:
        adapter("qwen").prepare_input(request(say("user", "Hi"), template_options={option: []}))
    assert caught.value.problem.status == 400
    assert option in caught.value.problem.detail


def test_options_that_a_template_chokes_on_are_a_400(adapter: MakeAdapter) -> None:
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(ProblemError) as caught:
        adapter("qwen").prepare_input(request(say("user", "Hi"), template_options={"enable_thinking": deep}))
    assert caught.value.problem.status == 400
