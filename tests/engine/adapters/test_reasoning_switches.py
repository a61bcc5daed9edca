"""Reasoning chosen for a request when the model cannot do all that is requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from greenroom.engine.adapters.find_reasoning import find_switches
from greenroom.engine.adapters.reasoning_switches import PromptChanges, ReasoningSwitches
from greenroom.schemas.messages.messages import (
    EFFORTS,
    Effort,
    JsonObject,
    Message,
    ReasoningSettings,
    TextPart,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.tests.support.templates.chat_adapters import chat
from greenroom.tests.support.templates.reasoning_templates import (
    REASONING_TEMPLATES,
    prompt,
    reasoning_adapter,
)

ON, OFF = PromptChanges({"enable_thinking": True}), PromptChanges({"enable_thinking": False})
LEVELS: dict[Effort, PromptChanges] = {
    effort: PromptChanges({"effort": effort}) for effort in EFFORTS if effort in ("low", "high", "max")
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
    chosen = ReasoningSwitches(ON, OFF, LEVELS).choose(ReasoningSettings(True, asked))
    assert chosen.changes.options == {"enable_thinking": True, "effort": given}
    assert chosen.honoured


@pytest.mark.parametrize(
    ("asked", "budget", "options"),
    [
        (ReasoningSettings(False), None, {}),
        (ReasoningSettings(False, "high"), None, {}),
        (ReasoningSettings(), 0, {}),
        (ReasoningSettings(True), None, {"enable_thinking": False}),
        (ReasoningSettings(), None, {"thinking": False}),
        (ReasoningSettings(), None, {"reasoning_effort": "none"}),
    ],
)
def test_every_way_to_switch_it_off_is_the_same(
    asked: ReasoningSettings, budget: int | None, options: JsonObject
) -> None:
    chosen = ReasoningSwitches(ON, OFF, LEVELS).choose(asked, budget, options)
    assert (chosen.changes, chosen.may_reason, chosen.honoured) == (OFF, False, True)


def test_a_model_that_always_thinks_does_so_with_the_least_effort() -> None:
    chosen = ReasoningSwitches(PromptChanges(), None, LEVELS).choose(ReasoningSettings(False))
    assert (chosen.changes, chosen.may_reason, chosen.honoured) == (LEVELS["low"], True, False)


def test_nothing_asked_changes_nothing() -> None:
    chosen = ReasoningSwitches(ON, OFF, LEVELS, "thinking_budget").choose(ReasoningSettings())
    assert (chosen.changes, chosen.may_reason, chosen.honoured) == (PromptChanges(), True, True)


def test_thoughts_of_earlier_turns_are_shown_again_by_the_name_that_the_template_reads() -> None:
    def render(messages: Any, **options: Any) -> str:
        kept = options.get("clear_thinking") is False
        return "".join(
            message.get("reasoning_content", "") * kept + message["content"] for message in messages
        )

    switches = find_switches(render, "clear_thinking", (("<think>", "</think>"),))
    assert switches.choose(ReasoningSettings(preserved=True)).changes.options == {"clear_thinking": False}
    assert switches.choose(ReasoningSettings(preserved=False)).changes.options == {"clear_thinking": True}
    assert not ReasoningSwitches(ON, OFF).choose(ReasoningSettings(preserved=True)).honoured


@pytest.mark.parametrize(
    ("way", "thinking", "said"),
    [
        ("gpt-oss", ReasoningSettings(False), True),
        ("gpt-oss", ReasoningSettings(True, "high"), False),
        ("Apriel 1.5", ReasoningSettings(False), True),
        ("Apriel 1.5", ReasoningSettings(True, "high"), False),
        ("Qwen 3,", ReasoningSettings(False), False),
    ],
)
def test_the_log_says_what_could_not_be_done(
    tmp_path: Path, way: str, thinking: ReasoningSettings, said: bool
) -> None:
    template = next(template for template in REASONING_TEMPLATES if way in template.way)
    adapter = reasoning_adapter(template, tmp_path / "model")
    with capture_logs() as logs:
        prompt(adapter, template, thinking)
    assert ([entry["event"] for entry in logs] == ["thinking not switched"]) is said


def test_a_budget_is_kept_by_a_model_that_cannot_be_switched(tmp_path: Path) -> None:
    template = next(template for template in REASONING_TEMPLATES if "Apriel 1.5" in template.way)
    adapter = reasoning_adapter(template, tmp_path / "model")
    assert adapter.prepare_input(chat("Hi", thinking_budget=0)).matcher is not None
    assert adapter.prepare_input(chat("Hi")).matcher is None


def test_only_a_thought_that_the_prompt_opens_is_closed(tmp_path: Path) -> None:
    template = next(template for template in REASONING_TEMPLATES if "the prompt opens" in template.way)
    ends_open = "{{ '<think>\\n' }}"
    assert ends_open in template.template
    opens = f"{{% if 'seen' not in messages[-1].content %}}{ends_open}{{% endif %}}"
    template = attrs.evolve(template, template=template.template.replace(ends_open, opens))
    adapter = reasoning_adapter(template, tmp_path / "model")
    assert prompt(adapter, template, ReasoningSettings(False)).endswith("<think>\n\n</think>\n\n")
    seen = ChatInput((Message("user", (TextPart("seen"),)),), thinking=ReasoningSettings(False))
    prepared = adapter.prepare_input(InferenceRequest("r", ModelKey("m"), seen))
    assert adapter.tokenizer.decode(prepared.tokens) == "[u]seen[a]"


def test_what_a_family_understands_is_not_said_to_its_models_that_never_think(tmp_path: Path) -> None:
    template = next(template for template in REASONING_TEMPLATES if template.family == "deepseek")
    template = attrs.evolve(template, reasoning_parser="null")
    adapter = reasoning_adapter(template, tmp_path / "model")
    assert prompt(adapter, template, ReasoningSettings(False)) == prompt(
        adapter, template, ReasoningSettings()
    )
