"""Changes to a prompt that make its model reason as much as a request asks for.

Every model has its own way: a template variable, a line in the system message, or reasoning closed before it
starts. `find_switches` detects it; this module applies it to a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from greenroom.schemas.messages.messages import (
    EFFORTS,
    Effort,
    JsonObject,
    Message,
    ReasoningSettings,
    TextPart,
    effort_named,
)

ENABLING_OPTIONS = ("enable_thinking", "thinking")
"""Template options by which clients switch reasoning, whatever the template's own name for it."""

_EFFORT_OPTION = "reasoning_effort"

_NOT_OFF = "this model's reasoning cannot be switched off"
_NOT_ON = "this model's reasoning cannot be switched on"
_UNKEPT = "this model does not see the reasoning of earlier turns"


@attrs.frozen
class PromptChanges:
    """Changes to a prompt that switch reasoning.

    Args:
        system: Text before the system message.
        user: Word after the last user message.
        blank_system: True to replace the template's own system message with an empty one, unless the client
            sends one.
        prompt_end: Text at the end of the prompt: reasoning that is already closed.
    """

    options: JsonObject = attrs.field(factory=dict)
    system: str = ""
    user: str = ""
    blank_system: bool = False
    prompt_end: str = ""

    def __or__(self, other: PromptChanges) -> PromptChanges:
        """Return both changes combined; options of `other` take precedence."""
        return PromptChanges(
            {**self.options, **other.options},
            other.system or self.system,
            other.user or self.user,
            self.blank_system or other.blank_system,
            other.prompt_end or self.prompt_end,
        )


NO_CHANGES = PromptChanges()  # No changes to the prompt


@attrs.frozen
class ChosenReasoning:
    """The reasoning chosen for a request.

    Args:
        may_reason: True if the answer may begin with reasoning.
        notice: Sentence for the client if the model cannot reason as requested; empty if it can, or if
            another of its efforts stands in for the requested one.
    """

    changes: PromptChanges
    may_reason: bool = True
    notice: str = ""

    @property
    def honoured(self) -> bool:
        """True if the model reasons as requested, or with its nearest effort."""
        return not self.notice


@attrs.frozen
class ReasoningSwitches:
    """Reasoning switches of one model.

    Args:
        on: Changes that switch reasoning on; None if there are none, or none are needed.
        off: Changes that switch reasoning off; None if that is impossible.
        efforts: Changes for each effort; empty if the model knows none.
        budget_option: Template option that takes a number of tokens.
        preserved: Template options that show or hide the reasoning of earlier turns.
    """

    on: PromptChanges | None = None
    off: PromptChanges | None = None
    efforts: Mapping[Effort, PromptChanges] = attrs.field(factory=dict)
    budget_option: str | None = None
    preserved: Mapping[bool, JsonObject] = attrs.field(factory=dict)

    def choose(
        self, asked: ReasoningSettings, budget: int | None = None, options: JsonObject | None = None
    ) -> ChosenReasoning:
        """Return the changes to the prompt for the requested reasoning.

        An unknown effort becomes the nearest known one, the higher of two. A model that always reasons gets
        its lowest effort, if it has efforts.

        Args:
            budget: Token budget of the reasoning; 0 switches it off.
            options: The request's own template options, which take precedence.
        """
        asked = _with_options(asked, options or {})
        preserved = PromptChanges(
            self.preserved.get(asked.preserved, {}) if asked.preserved is not None else {}
        )
        unkept = _UNKEPT if asked.preserved is True and True not in self.preserved else ""
        if asked.enabled is False or budget == 0:
            if self.off is not None:
                return ChosenReasoning(self.off | preserved, may_reason=False, notice=unkept)
            least = next(
                (self.efforts[effort] for effort in EFFORTS if effort in self.efforts), PromptChanges()
            )
            return ChosenReasoning(least | preserved, notice=_NOT_OFF)
        changes = preserved
        if asked.enabled or asked.effort or budget:
            changes = (self.on or PromptChanges()) | changes
        if asked.effort is not None and self.efforts:
            changes |= self.efforts[nearest_effort(asked.effort, self.efforts)]
        if budget and self.budget_option is not None:
            changes |= PromptChanges({self.budget_option: budget})
        unable = (asked.enabled or asked.effort is not None) and self.on is None
        return ChosenReasoning(changes, notice=_NOT_ON if unable else unkept)

    def describe(self) -> dict[str, Any]:
        return {
            "on": None if self.on is None else _description(self.on),
            "off": None if self.off is None else _description(self.off),
            "efforts": list(self.efforts),
            "budget": self.budget_option,
            "preserved": [name for options in self.preserved.values() for name in options][:1],
        }


def nearest_effort(asked: Effort, known: Mapping[Effort, Any]) -> Effort:
    """Return the known effort nearest to a requested one; of two equally near, the higher."""
    at = EFFORTS.index(asked)
    return min(known, key=lambda effort: (abs(EFFORTS.index(effort) - at), -EFFORTS.index(effort)))


def _with_options(asked: ReasoningSettings, options: JsonObject) -> ReasoningSettings:
    """Return the requested reasoning, including the usual template options of the request."""
    enabled = next((options[name] for name in ENABLING_OPTIONS if isinstance(options.get(name), bool)), None)
    effort = options.get(_EFFORT_OPTION)
    if effort == "none" and enabled is None:
        enabled = False
    return attrs.evolve(
        asked,
        enabled=asked.enabled if enabled is None else enabled,
        effort=effort_named(effort) or asked.effort,
    )


def _description(changes: PromptChanges) -> str:
    parts = [f"{name}={value}" for name, value in changes.options.items()]
    if changes.system:
        parts.append("system message")
    if changes.user:
        parts.append(changes.user)
    if changes.blank_system:
        parts.append("no system message of the template")
    if changes.prompt_end:
        parts.append("closed thought")
    return ", ".join(parts) or "as it is"


def add_prompt_changes(messages: Sequence[Message], changes: PromptChanges) -> list[Message]:
    told = list(messages)
    if changes.system:
        text = changes.system
        if told and told[0].role == "system":
            text = f"{text}\n\n{told.pop(0).text}".rstrip()
        told.insert(0, Message("system", (TextPart(text),)))
    elif changes.blank_system and not (told and told[0].role == "system"):
        told.insert(0, Message("system", (TextPart(""),)))
    if changes.user:
        _add_user_word(told, changes.user)
    return told


def _add_user_word(messages: list[Message], word: str) -> None:
    for at in reversed(range(len(messages))):
        message = messages[at]
        if message.role == "user":
            messages[at] = attrs.evolve(message, content=(TextPart(f"{message.text} {word}"),))
            return
