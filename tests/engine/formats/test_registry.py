"""Detection of a model's parsers."""

from __future__ import annotations

import pytest

from greenroom.engine.formats.registry import (
    FURTHER_NAMES,
    TOOL_PARSERS,
    detect_reasoning_parser,
    detect_tool_parser,
    make_tool_parser,
)
from greenroom.schemas.models.capabilities import CapabilityRecord

RECORD = CapabilityRecord("text", "default", "qwen3", 4096)

QWEN = """{{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}"""
SHOWN = {
    QWEN: "hermes_json",
    "<tool_call>{{ call['function'] | tojson }}</tool_call>": "hermes_json",
    "{{ '<tool_call>' + tool_call.name }}<arg_key>{{ k }}</arg_key>": "glm4_native",
    "<tool_call><name>{{ tool_call.name }}</name><arguments>{{ x }}</arguments></tool_call>": "glm4_xml",
    "{{ '<|start|>assistant to=functions.' + name + '<|channel|>commentary json<|message|>' }}": "harmony",
    "<|START_ACTION|>[{% for call in calls %}": "cohere2",
    "Write 'Action:' followed by a list\n```json\n[{'tool_name': title, 'parameters': {}}]```": "command_r",
    "{%- set begin = '<seed:tool_call>' %}<function=": "seed_oss",
    "{{ '<function_calls>' + calls }}": "olmo3",
    "<tool_calls>[{{ call }}]</tool_calls> after [BEGIN FINAL RESPONSE]": "apriel",
    '<tool_calls>\n{"name": name, "arguments": {}}\n</tool_calls>': "minimax_m1",
    "{{ '<|python_start|>' + call }}": "bare_pythonic",
    'Respond in the format {"name": function name, "parameters": dictionary}': "llama_json",
    "in the form [func_name1(params_name1=params_value1), func_name2(params)]": "bare_pythonic",
    "{{ '<|tool_call|>' }}": "granite_json",
    "{%- set dsml_token = '｜DSML｜' %}<{{ dsml_token }}function_calls>": "deepseek_dsml",
    "{{ '<｜tool▁calls▁begin｜>' + name + '\\n```json\\n' }}": "deepseek_v3",
    "{{ '<｜tool▁calls▁begin｜>' + name }}": "deepseek_v31",
    "{{ '<｜tool_calls_begin｜><steptml:invoke name=' }}": "step3",
    "{{ '<TOOLCALL>[' }}": "nemotron_v2",
    "{%- set tool_calls_token = '<|tools_prefix|>' -%}": "apertus",
    "{{ '<|start_header_id|>' + role }}{{ ' functools[' }}": "firefunction",
    'formatted as functools[{"name": [function name]}]': "phi4mini",
    "{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}": "phi4mini",
    "{{ '<function_call> ' + call | tojson }}": "granite_20b",
    '{{- "<|action_start|><|plugin|>\\n" }}': "internlm2",
    "role_sep='<|role_sep|>', role='function call'": "gigachat3",
    "{{ '<|function_call|>' + call }}": "gigachat3",
    "respond with >>>${recipient}\\n${content}": "functionary_v32",
    "make calls in a single JSON array: [...]": "xlam",
    "{{ '<tool_call:opensource>' + name + '<tool_sep:opensource>' }}<arg_key>": "hunyuan_v3",
    "{{ '<tool_call>' + name + '<tool_sep>' }}<arg_key>": "hunyuan",
    "{{ '<|bom|>' }}<tool_calls>[...]</tool_calls>": "jamba",
    "{{ '<|extra_4|>' }}<tool_calls>[...]</tool_calls>": "hunyuan",
    "<tool_call>{{ call | tojson }}</tool_call> else <response>": "ernie45",
    "<function={{ name }}>{{ arguments }}</function>": "llama_xml",
    "{{ '<|python_tag|>' }}{{ '{\"name\": \"' }}{{ '\"parameters\": ' }}": "llama_json",
    "{{ '<|python_tag|>' + call }}": "llama_python",
    "<tool_call>\\n<function=": "qwen3_coder",
    "[TOOL_CALLS]": "mistral",
    "<|tool_list_start|>": "mlx_lm.pythonic",
    "<minimax:tool_call>": "mlx_lm.minimax_m2",
    "<start_function_call>": "mlx_lm.function_gemma",
    "{{ messages }}": "null",
}


@pytest.mark.parametrize("template", SHOWN)
def test_the_template_shows_the_format_of_calls(template: str) -> None:
    assert (detect_tool_parser(template) or "null") == SHOWN[template]


@pytest.mark.parametrize(
    ("template", "parser_id"),
    [
        ("<think>{{ thought }}</think>", "think_tag"),
        ("<think>{{ thought }}</think><answer>{{ answer }}</answer>", "hunyuan"),
        ("<think:opensource>{{ thought }}</think:opensource>", "hunyuan_v3"),
        ("<think>{{ thought }}</think><response>{{ answer }}</response>", "ernie45"),
        ("{{ '<|inner_prefix|>' + thought }}", "apertus"),
        ("{{ '[THINK]' + m.reasoning_content + '[/THINK]' }}", "think_brackets"),
        ("{{ '<seed:think>' + m.reasoning_content + '</seed:think>' }}", "seed_oss"),
        ("{{ content.split('◁/think▷') }}", "kimi_vl"),
        ("Write 'Here is my thought process:' and after it 'Here is my response:'", "granite_words"),
        ("{{ 'Here are my reasoning steps:' }} and then [BEGIN FINAL RESPONSE]", "apriel"),
        ("<|START_THINKING|>{{ plan }}<|END_THINKING|>", "cohere2"),
        ("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}", "harmony"),
        ("{{ '<|channel>thought' + '<channel|>' }}", "mlx_lm.channel"),
    ],
)
def test_the_template_shows_the_markers_of_thoughts(template: str, parser_id: str) -> None:
    assert detect_reasoning_parser(template) == parser_id


def test_markers_may_stand_in_the_vocabulary_only() -> None:
    words = {"a": 0, "<|tool_call_start|>": 1, "<|tool_call_end|>": 2, "<|channel>": 3, "<channel|>": 4}
    assert detect_tool_parser("{{ messages }}", words) == "mlx_lm.pythonic"
    assert detect_reasoning_parser("{{ messages }}", words) == "mlx_lm.channel"
    assert detect_reasoning_parser("", {"<think>": 0, "</think>": 1}) == "think_tag"
    assert detect_reasoning_parser("") is None


def test_every_parser_of_mlx_lm_is_known_by_its_name() -> None:
    import pkgutil

    from mlx_lm import tool_parsers

    mlx_lm_parsers = {f"mlx_lm.{module.name}" for module in pkgutil.iter_modules(tool_parsers.__path__)}
    assert mlx_lm_parsers <= set(TOOL_PARSERS)
    assert len(mlx_lm_parsers) > 10


def test_ids_name_their_parsers() -> None:
    own = set(TOOL_PARSERS) - set(FURTHER_NAMES)
    assert {parser_id: make_tool_parser(parser_id).parser_id for parser_id in own} == {
        name: name for name in own
    }
    assert {make_tool_parser(parser_id).parser_id for parser_id in FURTHER_NAMES} <= own
    with pytest.raises(LookupError, match=r"'hermes'.*hermes_json"):
        make_tool_parser("hermes")
