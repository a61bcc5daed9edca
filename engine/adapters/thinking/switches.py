"""What a prompt needs so that its model thinks as much as a request asks for.

Every model has other words for it: a variable of its template, a line of the system message, a thought
that is closed before it begins. `find_switches` finds them; here they are chosen for a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.schemas.messages import JsonObject
from greenroom.schemas.thinking import EFFORTS, Effort, Thinking, effort_named

ENABLING_OPTIONS = ("enable_thinking", "thinking")
"""Template options by which clients switch thinking, whatever the template calls it."""

_EFFORT_OPTION = "reasoning_effort"


@attrs.frozen
class ThinkingMeans:
    """What is done to a prompt.

    Args:
        options: Variables of the template.
        system: Text before the system message.
        user: Word behind the last user's message.
        blank_system: Without a system message, an empty one takes the place of the template's own.
        prompt_end: Text behind the prompt: a thought that is closed already.
    """

    options: JsonObject = attrs.field(factory=dict)
    system: str = ""
    user: str = ""
    blank_system: bool = False
    prompt_end: str = ""

    def __or__(self, other: ThinkingMeans) -> ThinkingMeans:
        """Return both; options of `other` win."""
        return ThinkingMeans(
            {**self.options, **other.options},
            other.system or self.system,
            other.user or self.user,
            self.blank_system or other.blank_system,
            other.prompt_end or self.prompt_end,
        )


NO_MEANS = ThinkingMeans()
"""What leaves a prompt as the template writes it."""


@attrs.frozen
class ChosenThinking:
    """What a request gets.

    Args:
        thinks: The answer may begin with a thought.
        honoured: It is what was asked for, or the nearest that the model has of an effort.
    """

    means: ThinkingMeans
    thinks: bool = True
    honoured: bool = True


@attrs.frozen
class ThinkingSwitches:
    """How one model's thinking is switched.

    Args:
        on: What makes it think; None if nothing does, or nothing is needed.
        off: What makes it answer at once; None if nothing does.
        efforts: What asks for how much; empty if the model knows no efforts.
        budget_option: Option of the template that takes a number of tokens.
        preserved: What shows thoughts of earlier turns again, or hides them.
    """

    on: ThinkingMeans | None = None
    off: ThinkingMeans | None = None
    efforts: Mapping[Effort, ThinkingMeans] = attrs.field(factory=dict)
    budget_option: str | None = None
    preserved: Mapping[bool, JsonObject] = attrs.field(factory=dict)

    def choose(
        self, asked: Thinking, budget: int | None = None, options: JsonObject | None = None
    ) -> ChosenThinking:
        """Return what makes the model think as asked.

        An effort that the model does not know is the nearest that it does, the higher of two. A model that
        cannot but think does so with its least effort, if it has efforts.

        Args:
            budget: Tokens of the thought; 0 is not to think.
            options: The request's own options of the template; they win.
        """
        asked = _with_options(asked, options or {})
        preserved = ThinkingMeans(
            self.preserved.get(asked.preserved, {}) if asked.preserved is not None else {}
        )
        unkept = asked.preserved is True and True not in self.preserved
        if asked.enabled is False or budget == 0:
            if self.off is not None:
                return ChosenThinking(self.off | preserved, thinks=False, honoured=not unkept)
            least = next(
                (self.efforts[effort] for effort in EFFORTS if effort in self.efforts), ThinkingMeans()
            )
            return ChosenThinking(least | preserved, honoured=False)
        means = preserved
        if asked.enabled or asked.effort or budget:
            means = (self.on or ThinkingMeans()) | means
        if asked.effort is not None and self.efforts:
            means |= self.efforts[nearest_effort(asked.effort, self.efforts)]
        if budget and self.budget_option is not None:
            means |= ThinkingMeans({self.budget_option: budget})
        unable = (asked.enabled or asked.effort is not None) and self.on is None
        return ChosenThinking(means, honoured=not (unkept or unable))

    def describe(self) -> dict[str, Any]:
        """Return what can be switched, for the log."""
        return {
            "on": None if self.on is None else _description(self.on),
            "off": None if self.off is None else _description(self.off),
            "efforts": list(self.efforts),
            "budget": self.budget_option,
            "preserved": [name for options in self.preserved.values() for name in options][:1],
        }


def nearest_effort(asked: Effort, known: Mapping[Effort, Any]) -> Effort:
    """Return the known effort that is nearest to the one asked for; of two equally near, the higher."""
    at = EFFORTS.index(asked)
    return min(known, key=lambda effort: (abs(EFFORTS.index(effort) - at), -EFFORTS.index(effort)))


def _with_options(asked: Thinking, options: JsonObject) -> Thinking:
    """Return what is asked, what the options of the template ask in the usual words included."""
    enabled = next((options[name] for name in ENABLING_OPTIONS if isinstance(options.get(name), bool)), None)
    effort = options.get(_EFFORT_OPTION)
    if effort == "none" and enabled is None:
        enabled = False
    return attrs.evolve(
        asked,
        enabled=asked.enabled if enabled is None else enabled,
        effort=effort_named(effort) or asked.effort,
    )


def _description(means: ThinkingMeans) -> str:
    parts = [f"{name}={value}" for name, value in means.options.items()]
    if means.system:
        parts.append("system message")
    if means.user:
        parts.append(means.user)
    if means.blank_system:
        parts.append("no system message of the template")
    if means.prompt_end:
        parts.append("closed thought")
    return ", ".join(parts) or "as it is"
