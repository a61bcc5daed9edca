"""Parsers are chosen by a round trip through the template, and a prompt uses one call format only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_adapters import Folder

WEATHER = Tool("get_weather", "Of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
NULLABLE = Tool("look", "Up", {"type": "object", "properties": {"a": {"type": ["string", "null"]}}})
CALL = ToolCall("call_1", "get_weather", '{"city": "Oslo"}')
ASKED = (
    Message("user", (TextPart("Weather?"),)),
    Message("assistant", tool_calls=(CALL,)),
    Message("tool", (TextPart("cold"),), tool_call_id="call_1"),
)

DESCRIBED = "{% if tools %}{{ tools | tojson }}{% endif %}"
HERMES = "<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
UNKNOWN = "<mcp>{{ call.function.name }}({{ call.function.arguments | tojson }})</mcp>"
BARE = """{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}"""


def template(calls: str = HERMES, described: str = DESCRIBED, thought: str = "", start: str = "") -> str:
    """Return a ChatML template."""
    return (
        f"{described}{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n"
        f"{{% if m.reasoning_content %}}{thought}{{% endif %}}{{{{ m.content or '' }}}}"
        f"{{% for call in m.tool_calls or [] %}}{calls}{{% endfor %}}<|im_end|>\n{{% endfor %}}"
        f"{{% if add_generation_prompt %}}<|im_start|>assistant\n{start}{{% endif %}}"
    )


@pytest.fixture
def made(folder: Folder) -> Callable[..., Adapter]:
    """Return a factory of adapters by template; keywords are for the record, or settings under `settings`."""

    def make(text: str, settings: Settings | None = None, family: Any = "default", **record: Any) -> Adapter:
        tokenizer = load_tokenizer(folder("qwen", chat_template=text))
        capabilities = CapabilityRecord("text", family, "llama", 4096, **record)
        return make_adapter(capabilities, tokenizer, settings or Settings())

    return make


Made = Callable[..., Adapter]


def prompt(adapter: Adapter, *messages: Message, tools: tuple[Tool, ...] = (WEATHER,)) -> str:
    request = InferenceRequest("r", ModelKey("m"), ChatInput(messages, tools=tools))
    return adapter.tokenizer.decode(adapter.prepare_input(request).tokens)


def test_a_round_trip_goes_before_markers_and_those_before_the_family(made: Made) -> None:
    misleading = template() + "{# <|python_tag|> [TOOL_CALLS] #}"
    chosen = made(misleading).choice
    assert (chosen.tool_parser.parser_id, chosen.calls_by) == ("hermes_json", "round trip")
    silent = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    marked = made(silent + "{# [TOOL_CALLS] #}", family="liquid").choice
    assert (marked.tool_parser.parser_id, marked.calls_by) == ("mistral", "markers")
    unmarked = made(silent, family="glm4").choice
    assert (unmarked.tool_parser.parser_id, unmarked.calls_by) == ("glm4_native", "family")
    assert not any(choice.native_tools for choice in (marked, unmarked))


def test_the_record_goes_before_everything(made: Made) -> None:
    chosen = made(template(), tool_parser="llama_json", reasoning_parser="harmony").choice
    assert (chosen.tool_parser.parser_id, chosen.calls_by) == ("llama_json", "record")
    assert (chosen.reasoning_parser.parser_id, chosen.reasoning_by) == ("harmony", "record")


def test_past_calls_are_written_in_the_format_of_the_record(made: Made) -> None:
    read = prompt(made(template(), tool_parser="llama_json"), *ASKED)
    assert '{"name": "get_weather", "parameters": {"city": "Oslo"}}' in read
    assert "<tool_call>" not in read


def test_where_nothing_reads_the_calls_tools_and_calls_are_injected_in_one_format(made: Made) -> None:
    adapter = made(template(UNKNOWN))
    read = prompt(adapter, *ASKED)
    assert (adapter.choice.calls_by, adapter.choice.native_tools) == ("fallback", False)
    assert "<mcp>" not in read
    assert read.count("<tool_call>") == 2  # the example, and the call
    assert read.count('"get_weather"') == 2  # described once, and called


def test_without_injection_the_template_describes_tools_whatever_reads_the_calls(made: Made) -> None:
    adapter = made(template(UNKNOWN), settings=Settings(tool_injection=False))
    assert adapter.choice.native_tools
    assert "get_weather" in prompt(adapter, *ASKED)


def test_what_the_template_asks_for_goes_before_what_it_shows(made: Made) -> None:
    """Phi-4-mini's template requests `functools[…]` and writes past calls without it."""
    asks = '{% if tools %}Call functools[{"name": …}]. {{ tools | tojson }}{% endif %}'
    adapter = made(template(BARE, asks))
    read = prompt(adapter, *ASKED)
    assert (adapter.tool_parser.parser_id, adapter.choice.calls_by) == ("phi4mini", "markers")
    assert 'functools[{"name": "get_weather", "arguments": {"city": "Oslo"}}]' in read
    assert adapter.choice.native_tools


def test_tools_that_the_template_fails_to_describe_are_injected_for_that_request(made: Made) -> None:
    """Some templates recurse endlessly on a list of types."""
    fails = (
        "{% macro kind(t) %}{% if t is string %}{{ t }}{% else %}{{ kind(t) }}{% endif %}{% endmacro %}"
        "{% for tool in tools or [] %}{{ tool.function.name }}"
        "{% for p in tool.function.parameters.properties.values() %}{{ kind(p.type) }}{% endfor %}"
        "{% endfor %}"
    )
    adapter = made(template(described=fails))
    native, injected = prompt(adapter, *ASKED), prompt(adapter, *ASKED, tools=(NULLABLE,))
    assert "# Tools" not in native
    assert "# Tools" in injected
    assert '["string", "null"]' in injected
    assert injected.count("<tool_call>") == 2
    refusing = made(template(described=fails), settings=Settings(tool_injection=False))
    with pytest.raises(ProblemError) as caught:
        prompt(refusing, *ASKED, tools=(NULLABLE,))
    assert caught.value.problem.code == "chat_template_error"


def test_a_refusal_that_injection_does_not_mend_is_told_as_it_was(made: Made) -> None:
    refuses = "{% if messages[-1].content == 'cold' %}{{ raise_exception('No cold here') }}{% endif %}"
    with pytest.raises(ProblemError, match="No cold here"):
        prompt(made(template() + refuses), *ASKED)


def test_a_list_of_no_tools_is_given_where_the_template_needs_one(made: Made) -> None:
    counts = "{% if tools | length %}{{ tools | tojson }}{% endif %}"
    adapter = made(template(described=counts))
    assert adapter.choice.native_tools
    assert prompt(adapter, *ASKED[:1], tools=()).endswith("<|im_start|>assistant\n")
    assert "get_weather" in prompt(adapter, *ASKED)


def test_tools_are_json_text_where_the_template_reads_them_so(made: Made) -> None:
    """Firefunction's template reads `functions` and `datetime`, and fails without."""
    described = "{% set suffix = 'functools[' + functions + datetime %}{{ suffix }}{# <|start_header_id|> #}"
    calls = "functools[" + BARE + "]"
    adapter = made(template(calls, described=described))
    assert adapter.choice.native_tools
    assert '"name": "get_weather"' in prompt(adapter, *ASKED)
    assert "functools[[]" in prompt(adapter, *ASKED[:1], tools=())


@pytest.mark.parametrize(
    ("thought", "start", "parser_id"),
    [
        ("<think>\n{{ m.reasoning_content }}\n</think>\n\n", "", "think_tag"),
        ("<think>\n{{ m.reasoning_content }}\n</think>\n\n", "<think>\n", "think_tag"),
        ("[THINK]{{ m.reasoning_content }}[/THINK]", "", "think_brackets"),
        ("<think>{{ m.reasoning_content }}</think>{# <response> #}", "", "think_tag"),
    ],
)
def test_thoughts_are_read_back_too(made: Made, thought: str, start: str, parser_id: str) -> None:
    chosen = made(template(thought=thought, start=start)).choice
    assert (chosen.reasoning_parser.parser_id, chosen.reasoning_by) == (parser_id, "round trip")
    assert chosen.calls_by == "round trip"


def test_the_search_is_not_logged(made: Made) -> None:
    with capture_logs() as logs:
        made(template("<tool_call>{{ call.function.name }}</tool_call>"))
    assert logs == []
