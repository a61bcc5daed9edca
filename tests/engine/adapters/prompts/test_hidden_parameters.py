"""Parameters of tools that a chat template keeps from the model: Greenroom describes these tools, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import inlined
from greenroom.schemas.messages.messages import Tool
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.tests.support.templates.chat_adapters import Folder, adapter_of, chat
from greenroom.tests.support.templates.chat_tokenizers import __file__ as TOKENIZERS

QWEN = (Path(TOKENIZERS).parent / "chat_templates" / "qwen.jinja").read_text()
# As Gemma 4's template does it: keywords of the schema are skipped at every depth.
FIELDS = """{%- macro fields(schema) %}
{%- for key, value in schema.properties.items() if key not in ['type', 'description', 'properties'] %}
{{- key }}:{{ value.description }}({{ value.type }}){% if value.properties %}{{ fields(value) }}{% endif %},
{%- endfor %}{%- endmacro %}"""
KEYWORDS_LOST = FIELDS + QWEN.replace(
    "(tool | tojson)", "tool.function.name + fields(tool.function.parameters)"
)
NOTHING_LOST = QWEN
TOOL = Tool(
    "create_issue",
    "Create an issue",
    {
        "type": "object",
        "$defs": {"Label": {"type": "object", "properties": {"colour": {"type": "string"}}}},
        "properties": {
            "title": {"type": "string"},
            "description": {"type": "string", "description": "Text of the issue"},
            "type": {"type": "string", "enum": ["bug", "wish"]},
            "label": {"$ref": "#/$defs/Label", "description": "Its label"},
            "points": {"type": "array", "items": {"type": "object", "properties": {"depth": {}}}},
        },
        "required": ["title", "type"],
    },
)
SHOWN = Tool("look_up", "Look up a word", {"type": "object", "properties": {"word": {"type": "string"}}})


def prompt_of(adapter: Adapter, *tools: Tool) -> str:
    request: InferenceRequest = chat("Hello")
    assert isinstance(request.input, ChatInput)
    asked = attrs.evolve(request, input=attrs.evolve(request.input, tools=tools))
    return adapter.tokenizer.decode(adapter.prepare_input(asked).tokens)


@pytest.mark.parametrize("template", [KEYWORDS_LOST, NOTHING_LOST], ids=["keywords lost", "nothing lost"])
def test_the_model_sees_every_parameter(folder: Folder, template: str) -> None:
    adapter = adapter_of(folder("qwen", chat_template=template))
    with structlog.testing.capture_logs() as logs:
        prompts = [prompt_of(adapter, TOOL, SHOWN) for _ in range(2)]
    for name in ("title", "description", "type", "label", "colour", "points", "depth", "word"):
        assert name in prompts[0]
    assert "bug" in prompts[0]
    assert prompts[0] == prompts[1]
    described = "create_issue" in prompts[0].partition("In full:")[2]
    assert described == (template is KEYWORDS_LOST)
    assert '"name": "look_up"' not in prompts[0].partition("In full:")[2]
    warned = [log["names"] for log in logs if log["event"] == "template hides parameters"]
    assert warned == ([["description", "type", "depth"]] if described else [])
    off = adapter_of(folder("qwen", chat_template=template), tool_injection=False)
    assert "In full:" not in prompt_of(off, TOOL)


def test_tools_that_are_shown_whole_leave_the_prompt_as_it_was(folder: Folder) -> None:
    for template in (KEYWORDS_LOST, NOTHING_LOST):
        assert "In full:" not in prompt_of(adapter_of(folder("qwen", chat_template=template)), SHOWN)


LEAF = {"type": "string"}
LOOP = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
ESCAPED = {"$defs": {"a/b~c d": LEAF}, "properties": {"x": {"$ref": "#/$defs/a~1b~0c%20d"}}}
WIDE: dict[str, Any] = {
    "$defs": {
        f"D{i}": {"properties": {side: {"$ref": f"#/$defs/D{i + 1}"} for side in ("l", "r")}}
        for i in range(40)
    },
    "properties": {"root": {"$ref": "#/$defs/D0"}},
}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"properties": {"a": LEAF}}, {"properties": {"a": LEAF}}),
        (
            {"$defs": {"S": LEAF}, "properties": {"a": {"$ref": "#/$defs/S", "description": "d"}}},
            {"properties": {"a": {**LEAF, "description": "d"}}},
        ),
        (ESCAPED, {"properties": {"x": LEAF}}),
        (
            {"$defs": {"Node": LOOP}, "properties": {"list": {"$ref": "#/$defs/Node"}}},
            {"$defs": {"Node": LOOP}, "properties": {"list": LOOP}},
        ),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"properties": {"a": {"$ref": "#/nowhere"}}}),
        ({"properties": {"a": {"$ref": "https://a"}}}, {"properties": {"a": {"$ref": "https://a"}}}),
    ],
)
def test_references_within_a_schema_are_written_out(schema: dict[str, Any], written: dict[str, Any]) -> None:
    assert inlined(schema) == written


def test_references_that_multiply_are_written_out_up_to_a_limit() -> None:
    long = {**WIDE, "$defs": {**WIDE["$defs"], "D4": {"type": "string", "description": "x" * 5_000}}}
    for schema in (WIDE, long):
        text = str(inlined(schema))
        assert len(text) < 200_000
        assert "'$defs'" in text


def test_references_that_lead_deep_stay_where_they_are() -> None:
    links: dict[str, Any] = {}
    for i in range(30):
        links[f"D{i}"] = {"$ref": f"#/$defs/D{i + 1}"}
        for _ in range(25):
            links[f"D{i}"] = {"properties": {"x": links[f"D{i}"]}}
    schema = {"$defs": {**links, "D30": LEAF}, "properties": {"root": {"$ref": "#/$defs/D0"}}}
    written = inlined(schema)
    assert "'$ref'" not in str(written["properties"]["root"]["properties"])[:800]
    assert written["$defs"] == schema["$defs"]
