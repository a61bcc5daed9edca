"""One tool call in every call format."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.engine.parsers.detection.registry import make_tool_parser
from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls, collect_calls, extract_calls

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CLOCK = Tool("clock.now", parameters={"type": "object", "properties": {}})
TOOLS = (WEATHER, CLOCK)
PARIS = {"city": "Paris", "days": 2}

WRITTEN = {
    "hermes_json": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
    "</tool_call>",
    "glm4_native": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "glm4_xml": "<tool_call><name>get_weather</name>"
    '<arguments>{"city": "Paris", "days": 2}</arguments></tool_call>',
    "llama_xml": '<function=get_weather>{"city": "Paris", "days": 2}</function>',
    "llama_python": '<|python_tag|>get_weather.call(city="Paris", days=2)<|eom_id|>',
    "llama_json": '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}',
    "granite_json": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    "mistral": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    "harmony": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city": "Paris", "days": 2}<|call|>',
    "bare_pythonic": '[get_weather(city="Paris", days=2)]',
    "olmo3": '<function_calls>get_weather(city="Paris", days=2)</function_calls>',
    "cohere2": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", '
    '"parameters": {"city": "Paris", "days": 2}}\n]<|END_ACTION|>',
    "command_r": 'Action:\n```json\n[\n    {"tool_name": "get_weather", '
    '"parameters": {"city": "Paris", "days": 2}}\n]\n```',
    "seed_oss": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
    "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
    "apriel": '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]</tool_calls>',
    "minimax_m1": '<tool_calls>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
    "</tool_calls>",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    '```json\n{"city": "Paris", "days": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    '{"city": "Paris", "days": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "step3": "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
    '<steptml:invoke name="get_weather">\n<steptml:parameter name="city">Paris</steptml:parameter>\n'
    '<steptml:parameter name="days">2</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n'
    "<｜tool_calls_end｜>",
    "hunyuan": '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]'
    "</tool_calls>",
    "hunyuan_v3": "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
    "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n"
    "<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n"
    "</tool_call:opensource>\n</tool_calls:opensource>",
    "jamba": '<tool_calls>[\n    {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n]'
    "</tool_calls>",
    "nemotron_v2": '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]'
    "</TOOLCALL>",
    "apertus": '<|tools_prefix|>[{"get_weather": {"city": "Paris", "days": 2}}]<|tools_suffix|>',
    "phi4mini": 'functools[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    "firefunction": 'functools[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    "granite_20b": '<function_call> {"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
    "internlm2": '<|action_start|><|plugin|>\n{"name": "get_weather", "parameters": {"city": "Paris", '
    '"days": 2}}<|action_end|>',
    "gigachat3": "<|message_sep|>\n\nfunction call<|role_sep|>\n"
    '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
    "ernie45": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
    "</tool_call>",
    "xlam": '[{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}]',
    "functionary_v32": 'get_weather\n{"city": "Paris", "days": 2}',
    "mlx_lm.function_gemma": "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}"
    "<end_function_call>",
    "mlx_lm.gemma4": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>',
    "mlx_lm.kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris", "days": 2}<|tool_call_end|><|tool_calls_section_end|>',
    "mlx_lm.kimi_k3": '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
    '<|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "solar_open": "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>get_weather<|tool_call:args|>"
    '{"city": "Paris", "days": 2}<|tool_call:end|><|calls|>',
    "mlx_lm.longcat": "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n"
    "<longcat_arg_value>Paris</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n"
    "<longcat_arg_value>2</longcat_arg_value>\n</longcat_tool_call>",
    "mlx_lm.minicpm5": '<function name="get_weather"><param name="city">Paris</param>'
    '<param name="days">2</param></function>',
    "mlx_lm.minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris'
    '</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
    "mlx_lm.muse_spark": '<atem:function_calls>\n<atem:invoke name="get_weather">\n'
    '<atem:parameter name="city">Paris</atem:parameter>\n<atem:parameter name="days">2</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>",
    "mlx_lm.pythonic": '<|tool_call_start|>[get_weather(city="Paris", days=2)]<|tool_call_end|>',
}


def extract_in_any_pieces(parser_id: str, text: str, tools: Sequence[Tool] | None = TOOLS) -> ExtractedCalls:
    """Return the calls in a text, after checking that parsing it by characters gives the same ones."""
    parser = make_tool_parser(parser_id)
    found = extract_calls(parser, text, tools)
    stream = parser.new_stream(tools)
    events = [event for character in text for event in stream.feed(character)]
    assert collect_calls([*events, *stream.finish()]) == found
    return found
