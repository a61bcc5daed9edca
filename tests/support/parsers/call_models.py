"""Tiny models whose template teaches one call format, and tool calls forced through their engine."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import attrs

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.engine.text.text_engine import TextEngine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.events.events import Finished, InferenceEvent, TextDelta, ToolCallDelta
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolChoice
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import loaded
from greenroom.tests.support.grammars.random_schemas import RandomSchemas
from greenroom.tests.support.models.tiny_models import SPECIAL_TOKENS
from greenroom.tests.support.parsers.tool_call_examples import WRITTEN

# The template omits schemas: the grammar enforces them, and long prompts would take most of the time.
_TEMPLATE = """\
{%- if tools %}<|im_start|>system
You may call:
{% for tool in tools %}{{ tool.function.name }}
{% endfor %}A call is written so: EXAMPLE<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_END_BIAS = 6.0
_MAX_TOKENS = 1_000


@attrs.frozen
class ForcedAnswer:
    """The result of one request.

    Args:
        tools: Tools offered.
        calls: Tool calls, with their arguments as JSON text.
        text: Text beside the calls.
        reason: Finish reason.
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice
    parallel: bool
    calls: tuple[ParsedCall, ...]
    text: str
    reason: str


def call_adapter(folder: Path, home: Path, call_format: str) -> Adapter:
    """Return the adapter of a tiny model with a template for the call format.

    Args:
        folder: Folder of the tiny model.
        home: Parent folder for a copy of its tokenizer.
    """
    place = home / call_format
    place.mkdir(exist_ok=True)
    shutil.copy(folder / "tokenizer.json", place)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = _TEMPLATE.replace("EXAMPLE", WRITTEN[call_format].replace("{", "{{ '{' }}"))
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    record = CapabilityRecord("text", "default", "qwen3", 8192, call_format, "null", native_tools=True)
    return make_adapter(record, load_tokenizer(place), Settings())


def force_calls(folder: Path, adapter: Adapter, seeds: Sequence[int]) -> list[ForcedAnswer]:
    """Force tool calls in one batch of requests.

    Args:
        folder: Folder of the tiny model.
        seeds: One seed for each request, which determines its schemas and its tool choice.
    """
    engine = TextEngine(loaded(folder)[0], adapter)
    end = adapter.tokenizer.added_tokens[SPECIAL_TOKENS[2]]
    demands = {}
    events: dict[str, list[InferenceEvent]] = {str(seed): [] for seed in seeds}
    for seed in seeds:
        schemas, chance = RandomSchemas(seed, formats=False), random.Random(seed)
        tools = tuple(schemas.tool(name, strict=chance.random() < 0.7) for name in ("look_up", "find_all"))
        choice = ToolChoice("required") if chance.random() < 0.7 else ToolChoice("named", "find_all")
        chat = ChatInput(
            (Message("user", (TextPart("Do it."),)),),
            tools,
            choice,
            parallel_tool_calls=chance.random() < 0.1,
        )
        overrides = {"max_tokens": _MAX_TOKENS, "seed": seed, "logit_bias": ((end, _END_BIAS),)}
        request = InferenceRequest(str(seed), ModelKey("tiny"), chat, overrides)
        demands[str(seed)] = chat
        engine.submit(request, adapter.prepare_input(request))
    while engine.has_work:
        for ident, event in engine.step():
            events[ident].append(event)
    return [_answer(demands[ident], events[ident]) for ident in demands]


def _answer(chat: ChatInput, events: Sequence[InferenceEvent]) -> ForcedAnswer:
    calls: dict[int, tuple[str, str]] = {}
    text = ""
    for event in events:
        match event:
            case TextDelta():
                text += event.text
            case ToolCallDelta():
                name, arguments = calls.get(event.call, ("", ""))
                calls[event.call] = (name + (event.name or ""), arguments + event.arguments)
    last = events[-1]
    assert isinstance(last, Finished)
    made = tuple(ParsedCall(name, arguments) for name, arguments in calls.values())
    return ForcedAnswer(chat.tools, chat.tool_choice, chat.parallel_tool_calls, made, text, last.reason)
