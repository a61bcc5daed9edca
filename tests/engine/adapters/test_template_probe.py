"""Probing of templates for their traits."""

from __future__ import annotations

import attrs
import pytest

from greenroom.engine.adapters.template_probe import TemplateTraits, probe_template
from greenroom.tests.support.templates.chat_adapters import MakeAdapter
from greenroom.tests.support.templates.chat_tokenizers import TEMPLATES

TRAITS = {
    "qwen": TemplateTraits(),
    "thinking": TemplateTraits(),
    "llama": TemplateTraits(
        system_alone=False, assistant_first=False, text_beside_calls=False, parallel_calls=False
    ),
    "mistral": TemplateTraits(
        system_alone=False,
        late_system=False,
        several_systems=False,
        repeated_roles=False,
        assistant_first=False,
        user_after_tool=False,
        text_beside_calls=False,
        short_call_ids=True,
    ),
    "gemma": TemplateTraits(
        system=False,
        system_alone=False,
        late_system=False,
        several_systems=False,
        repeated_roles=False,
        assistant_first=False,
        tools=False,
        tool_calls=False,
        tool_results=False,
    ),
    "glm4": TemplateTraits(),
    "granite": TemplateTraits(),
    "liquid": TemplateTraits(tool_calls=False),
    "deepseek": TemplateTraits(
        tools=False, arguments_as_text=True, calls_without_content=True, text_beside_calls=False
    ),
    "gpt_oss": TemplateTraits(
        late_system=False,
        several_systems=False,
        text_beside_calls=False,
        parallel_calls=False,
    ),
    "seed_oss": TemplateTraits(),
    "strict_system": TemplateTraits(
        system_alone=False,
        late_system=False,
        several_systems=False,
        assistant_first=False,
        tools=False,
        tool_calls=False,
        tool_results=False,
    ),
    "parts": TemplateTraits(parts=True, tools=False, tool_calls=False, tool_results=False),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_can_do_is_found_by_trying_it(adapter: MakeAdapter, name: str) -> None:
    traits = probe_template(adapter(name).tokenizer)
    assert attrs.asdict(traits) == attrs.asdict(TRAITS[name])
