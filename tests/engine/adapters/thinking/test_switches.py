"""Reasoning chosen for a request when the model cannot do all that is requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from greenroom.engine.adapters.thinking.find_switches import find_switches
from greenroom.engine.adapters.thinking.switches import ThinkingMeans, ThinkingSwitches
from greenroom.schemas.messages.messages import JsonObject, Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.messages.thinking import EFFORTS, Effort, Thinking
from greenroom.schemas.model_key import ModelKey
from greenroom.tests.support.templates.chat_adapters import chat
from greenroom.tests.support.templates.thinking_templates import THINKING_TEMPLATES, prompt, thinking_adapter

ON, OFF = ThinkingMeans({"enable_thinking": True}), ThinkingMeans({"enable_thinking": False})
LEVELS: dict[Effort, ThinkingMeans] = {
    effort: ThinkingMeans({"effort": effort}) for effort in EFFORTS if effort in ("low", "high", "max")
}


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "high"),
        ("high", "high"),
        ("xhigh", "max"),
        ("max", "max"),
    ],
)
def test_an_unknown_effort_is_the_nearest_one_and_the_higher_of_two(asked: Effort, given: str) -> None:
    chosen = ThinkingSwitches(ON, OFF, LEVELS).choose(Thinking(True, asked))
    assert chosen.means.options == {"enable_thinking": True, "effort": given}
    assert chosen.honoured


@pytest.mark.parametrize(
    ("asked", "budget", "options"),
    [
        (Thinking(False), None, {}),
        (Thinking(False, "high"), None, {}),
        (Thinking(), 0, {}),
        (Thinking(True), None, {"enable_thinking": False}),
        (Thinking(), None, {"thinking": False}),
        (Thinking(), None, {"reasoning_effort": "none"}),
    ],
)
def test_every_way_to_switch_it_off_is_the_same(
    asked: Thinking, budget: int | None, options: JsonObject
) -> None:
    chosen = ThinkingSwitches(ON, OFF, LEVELS).choose(asked, budget, options)
    assert (chosen.means, chosen.thinks, chosen.honoured) == (OFF, False, True)


def test_a_model_that_always_thinks_does_so_with_the_least_effort() -> None:
    chosen = ThinkingSwitches(ThinkingMeans(), None, LEVELS).choose(Thinking(False))
    assert (chosen.means, chosen.thinks, chosen.honoured) == (LEVELS["low"], True, False)


def test_nothing_asked_changes_nothing() -> None:
    chosen = ThinkingSwitches(ON, OFF, LEVELS, "thinking_budget").choose(Thinking())
    assert (chosen.means, chosen.thinks, chosen.honoured) == (ThinkingMeans(), True, True)


def test_thoughts_of_earlier_turns_are_shown_again_by_the_name_that_the_template_reads() -> None:
    def render(messages: Any, **options: Any) -> str:
        kept = options.get("clear_thinking") is False
        return "".join(
            message.get("reasoning_content", "") * kept + message["content"] for message in messages
        )

    switches = find_switches(render, "clear_thinking", (("<think>", "</think>"),))
    assert switches.choose(Thinking(preserved=True)).means.options == {"clear_thinking": False}
    assert switches.choose(Thinking(preserved=False)).means.options == {"clear_thinking": True}
    assert not ThinkingSwitches(ON, OFF).choose(Thinking(preserved=True)).honoured


@pytest.mark.parametrize(
    ("way", "thinking", "said"),
    [
        ("gpt-oss", Thinking(False), True),
        ("gpt-oss", Thinking(True, "high"), False),
        ("Apriel 1.5", Thinking(False), True),
        ("Apriel 1.5", Thinking(True, "high"), False),
        ("Qwen 3,", Thinking(False), False),
    ],
)
def test_the_log_says_what_could_not_be_done(
    tmp_path: Path, way: str, thinking: Thinking, said: bool
) -> None:
    template = next(template for template in THINKING_TEMPLATES if way in template.way)
    adapter = thinking_adapter(template, tmp_path / "model")
    with capture_logs() as logs:
        prompt(adapter, template, thinking)
    assert ([entry["event"] for entry in logs] == ["thinking not switched"]) is said


def test_a_budget_is_kept_by_a_model_that_cannot_be_switched(tmp_path: Path) -> None:
    template = next(template for template in THINKING_TEMPLATES if "Apriel 1.5" in template.way)
    adapter = thinking_adapter(template, tmp_path / "model")
    assert adapter.prepare_input(chat("Hi", thinking_budget=0)).matcher is not None
    assert adapter.prepare_input(chat("Hi")).matcher is None


def test_only_a_thought_that_the_prompt_opens_is_closed(tmp_path: Path) -> None:
    template = next(template for template in THINKING_TEMPLATES if "the prompt opens" in template.way)
    ends_open = "{{ '<think>\\n' }}"
    assert ends_open in template.template
    opens = f"{{% if 'seen' not in messages[-1].content %}}{ends_open}{{% endif %}}"
    template = attrs.evolve(template, template=template.template.replace(ends_open, opens))
    adapter = thinking_adapter(template, tmp_path / "model")
    assert prompt(adapter, template, Thinking(False)).endswith("<think>\n\n</think>\n\n")
    seen = ChatInput((Message("user", (TextPart("seen"),)),), thinking=Thinking(False))
    prepared = adapter.prepare_input(InferenceRequest("r", ModelKey("m"), seen))
    assert adapter.tokenizer.decode(prepared.tokens) == "[u]seen[a]"


def test_what_a_family_understands_is_not_said_to_its_models_that_never_think(tmp_path: Path) -> None:
    template = next(template for template in THINKING_TEMPLATES if template.family == "deepseek")
    template = attrs.evolve(template, thinking_parser="null")
    adapter = thinking_adapter(template, tmp_path / "model")
    assert prompt(adapter, template, Thinking(False)) == prompt(adapter, template, Thinking())
