"""Short templates with each way of real templates to switch reasoning on and off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.messages import Message, ReasoningSettings, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord, Family
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_tokenizers import make_chat_tokenizer

_TURNS = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}[a]"


@attrs.frozen
class ReasoningTemplate:
    """A template with its way to switch reasoning.

    Args:
        way: Description, with the models that use it.
        system: System message from the client.
    """

    way: str
    template: str
    reasoning_parser: str = "think_tag"
    family: Family = "default"
    system: str = ""


REASONING_TEMPLATES = (
    ReasoningTemplate(
        "`enable_thinking`: Qwen 3, GLM 4.5 to 4.7, SmolLM 3, Nemotron 3, Gemma 4, Hunyuan",
        _TURNS + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
    ),
    ReasoningTemplate(
        "`thinking`, off by default: DeepSeek V3.1, Kimi K2.5",
        _TURNS + "{% if thinking %}<think>{% else %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "`reasoning`: Command A",
        _TURNS + "<think>{% if reasoning is defined and not reasoning %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "`thinking_mode`: MiniMax M3",
        _TURNS + "{% if thinking_mode is defined %}"
        "{{ {'enabled': '<think>', 'disabled': '</think>'}[thinking_mode] }}{% endif %}",
    ),
    ReasoningTemplate(
        "`thinking_option`: Ling, Ring",
        _TURNS
        + "{% if thinking_option == 'on' %}<think>{% elif thinking_option == 'off' %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "`reasoning_effort` or `reasoning_strength`, written into the prompt: gpt-oss, Muse",
        "[s]Reasoning: {{ reasoning_effort | default('medium') }}" + _TURNS,
    ),
    ReasoningTemplate(
        "`reasoning_effort` with some values: Qwen 3.8, Mistral Small 4",
        "{% set effort = reasoning_effort | default('xhigh') %}"
        "{% if effort not in ['low', 'medium', 'xhigh'] %}{{ raise_exception('unknown') }}{% endif %}"
        "[s]{{ effort }}"
        + _TURNS
        + "<think>{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "`reasoning_effort` with two values: GLM 5",
        "[s]Effort: {{ 'High' if reasoning_effort == 'high' else 'Max' }}"
        + _TURNS
        + "<think>{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "`reasoning_effort` with a value for off: Hunyuan 3",
        "{% set effort = reasoning_effort | default('no_think') %}"
        "{% if effort not in ['no_think', 'low', 'high'] %}{{ raise_exception('unknown') }}{% endif %}"
        + _TURNS
        + "{{ '</think>' if effort == 'no_think' else '<think>' + effort + ':' }}",
    ),
    ReasoningTemplate(
        "`reasoning_effort` whose lowest value closes the reasoning: Solar Open",
        _TURNS + "{% if reasoning_effort in ['low', 'minimal'] %}<think></think>{% endif %}",
        reasoning_parser="null",
    ),
    ReasoningTemplate(
        "`thinking` and `thinking_effort`: Kimi K3",
        "{% set effort = thinking_effort | default('max') %}"
        "{% if effort not in ['low', 'high', 'max'] %}{{ raise_exception('unknown') }}{% endif %}"
        "{% if thinking is not defined or thinking %}[s]{{ effort }}{% endif %}" + _TURNS,
    ),
    ReasoningTemplate(
        "`low_effort`: Nemotron 3 Super",
        _TURNS + "{% if low_effort %} briefly {% endif %}<think>"
        "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "`thinking_budget`: Seed-OSS",
        "{% if thinking_budget is defined %}[s]budget {{ thinking_budget }}{% endif %}" + _TURNS,
    ),
    ReasoningTemplate(
        "`/think`, `/no_think`: Nemotron Nano 2",
        "{% set ns = namespace(on=true) %}{% for m in messages %}"
        "{% if '/no_think' in m.content %}{% set ns.on = false %}{% endif %}{% endfor %}"
        + _TURNS.replace("m.content", "m.content.replace('/no_think', '').replace('/think', '')")
        + "<think>{% if not ns.on %}</think>{% endif %}",
    ),
    ReasoningTemplate(
        "instructions instead of a system message: Magistral, Ministral 3",
        "{% if messages[0].role != 'system' %}[s]Think: [THINK]so[/THINK]{% endif %}" + _TURNS,
        reasoning_parser="think_brackets",
    ),
    ReasoningTemplate(
        "the same, beside the client's system message",
        "{% if messages[0].role != 'system' %}[s]Think: [THINK]so[/THINK]{% endif %}" + _TURNS,
        reasoning_parser="think_brackets",
        system="Be brief",
    ),
    ReasoningTemplate(
        "`thinking`, whose instructions a system message replaces: Granite 3.2, 3.3",
        "{% if messages[0].role != 'system' %}[s]{{ 'Think first' if thinking else 'Help' }}{% endif %}"
        + _TURNS,
        system="Be brief",
    ),
    ReasoningTemplate(
        "reasoning that the prompt opens: DeepSeek R1's distils, QwQ, MiniMax M2, Step 3.5",
        _TURNS + "{{ '<think>\\n' }}",
    ),
    ReasoningTemplate(
        "empty reasoning before earlier answers: Kimi K2 Thinking",
        "{% for m in messages %}[{{ m.role[0] }}]{% if m.role == 'assistant' %}<think></think>{% endif %}"
        "{{ m.content }}{% endfor %}[a]",
    ),
    ReasoningTemplate(
        "nothing, family `deepseek`: DeepSeek R1", _TURNS + "{# </think> #}", family="deepseek"
    ),
    ReasoningTemplate("nothing, family `nemotron_nas`: Llama Nemotron", _TURNS, family="nemotron_nas"),
    ReasoningTemplate("nothing, family `mimo`: MiMo", _TURNS, family="mimo"),
    ReasoningTemplate("nothing, another model that reasons: Apriel 1.5", _TURNS + "{# </think> #}"),
)

SETTINGS: dict[str, tuple[ReasoningSettings, dict[str, Any]]] = {
    "nothing asked": (ReasoningSettings(), {}),
    "off": (ReasoningSettings(False), {}),
    "on": (ReasoningSettings(True), {}),
    "`low`": (ReasoningSettings(True, "low"), {}),
    "`high`": (ReasoningSettings(True, "high"), {}),
    "`max`": (ReasoningSettings(True, "max"), {}),
    "budget 700": (ReasoningSettings(), {"thinking_budget": 700}),
}
"""Client settings for reasoning, by their name in notes/thinking.md."""


def reasoning_adapter(template: ReasoningTemplate, folder: Path) -> Adapter:
    """Return the adapter of a model with a template, written into `folder`."""
    make_chat_tokenizer("qwen", folder, chat_template=template.template)
    record = CapabilityRecord(
        "text", template.family, "llama", 4096, reasoning_parser=template.reasoning_parser
    )
    return make_adapter(record, load_tokenizer(folder), Settings())


def prompt(
    adapter: Adapter, template: ReasoningTemplate, thinking: ReasoningSettings, **overrides: Any
) -> str:
    """Return the prompt for the user message "Hi"."""
    system = (Message("system", (TextPart(template.system),)),) if template.system else ()
    turns = (*system, Message("user", (TextPart("Hi"),)))
    chat = ChatInput(turns, thinking=thinking)
    prepared = adapter.prepare_input(InferenceRequest("r", ModelKey("m"), chat, overrides))
    return adapter.tokenizer.decode(prepared.tokens)


def rendered_line(template: ReasoningTemplate, folder: Path) -> str:
    """Return a template's line in notes/thinking.md: its prompt, and those of settings that change it."""
    adapter = reasoning_adapter(template, folder)
    plain, *others = (prompt(adapter, template, asked, **fields) for asked, fields in SETTINGS.values())
    changed: dict[str, list[str]] = {}
    for setting, text in zip(list(SETTINGS)[1:], others, strict=True):
        if text != plain:
            changed.setdefault(text, []).append(setting)
    _, _, *most = SETTINGS
    cells = [_code(plain)]
    for text, names in changed.items():
        cells.append(f"{'all others' if names == most else ', '.join(names)} {_code(text)}")
    return f"- {template.way}: {'; '.join(cells)}"


def _code(text: str) -> str:
    return "`" + text.replace("\n", "⏎") + "`"
