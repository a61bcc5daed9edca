"""Detection of the reasoning efforts that a template knows, by rendering it with each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from greenroom.engine.adapters.reasoning.switches import PromptChanges
from greenroom.schemas.messages.reasoning import EFFORTS, Effort

Render = Callable[..., str | None]
"""Function that renders messages with template options; returns None on a refusal."""

EFFORT_OPTIONS = ("reasoning_effort", "thinking_effort", "reasoning_strength")
_FLAGS: tuple[tuple[str, Effort], ...] = (("low_effort", "low"), ("medium_effort", "medium"))
"""Boolean options, each for one effort (Nemotron 3); without them the effort is high."""

_NO_EFFORT = ("none", "no_think", "off", "minimal")
_ANY_EFFORT = "zqeffort"
_TRAINED: tuple[Effort, ...] = ("low", "medium", "high")
"""Efforts of templates that copy any word into the prompt: those of gpt-oss, which others follow."""

_BUDGETS: Mapping[Effort, int] = {"minimal": 512, "low": 1024, "medium": 4096, "high": 16384}
"""Budgets in tokens for templates with a budget but no efforts: those of Seed-OSS's training."""

USER = "zquser"


@attrs.frozen
class EffortLevels:
    """Efforts of a template, with their changes to the prompt.

    Args:
        efforts: Change to the prompt for each effort.
        off: Change that switches reasoning off; None if no effort does.
    """

    efforts: Mapping[Effort, PromptChanges] = attrs.field(factory=dict)
    off: PromptChanges | None = None


def find_efforts(
    render: Render, reads: Callable[[str], bool], conversation: Sequence[Mapping[str, Any]], on: PromptChanges
) -> EffortLevels:
    """Return the efforts that the template knows.

    Args:
        render: Renderer of messages with template options.
        reads: Function that returns whether the template may read an option of that name.
        conversation: Messages that end with a user turn with the text `USER`.
        on: Change that switches reasoning on; efforts may matter only then.
    """
    for name in filter(reads, EFFORT_OPTIONS):
        rendered = {
            value: render(conversation, **{**on.options, name: value})
            for value in (*EFFORTS, *_NO_EFFORT, _ANY_EFFORT)
        }
        levels = _levels(name, rendered)
        if levels.efforts or levels.off:
            return levels
    flags = {
        effort: PromptChanges({name: True})
        for name, effort in _FLAGS
        if reads(name)
        and _differ(render(conversation, **on.options), render(conversation, **{**on.options, name: True}))
    }
    return EffortLevels({**flags, "high": PromptChanges()} if flags else {})


def budget_levels(option: str) -> dict[Effort, PromptChanges]:
    """Return efforts as token budgets; the highest effort has no budget."""
    return {effort: PromptChanges({option: tokens}) for effort, tokens in _BUDGETS.items()} | {
        "xhigh": PromptChanges()
    }


def _levels(name: str, rendered: Mapping[str, str | None]) -> EffortLevels:
    other = rendered[_ANY_EFFORT]
    if other is not None and _ANY_EFFORT in other:
        return EffortLevels({effort: PromptChanges({name: effort}) for effort in _TRAINED})
    off = next((value for value in _NO_EFFORT if _closes_reasoning(rendered, value)), None)
    accepted = {
        effort: rendered[effort] for effort in EFFORTS if effort != off and rendered[effort] is not None
    }
    distinct = [effort for effort, text in accepted.items() if text != other]
    known = {effort: PromptChanges({name: effort}) for effort in distinct}
    if other is not None and distinct:
        named = _level_of(other, accepted, distinct[0])
        if named is None:  # All other efforts behave like the default.
            known |= {effort: PromptChanges({name: effort}) for effort in accepted}
        else:
            known |= {named: PromptChanges({name: named})}
    switches_off = None if off is None else PromptChanges({name: off})
    return EffortLevels({effort: known[effort] for effort in EFFORTS if effort in known}, switches_off)


def _closes_reasoning(rendered: Mapping[str, str | None], value: str) -> bool:
    """Return whether an effort means no reasoning, judged by its prompt's end or by its name."""
    text, other = rendered[value], rendered[_ANY_EFFORT]
    high = rendered["high"] or other
    if text is None or text in (other, high):
        return False
    return value != "minimal" or _behind_user(text) != _behind_user(high or "")


def _behind_user(text: str) -> str:
    return text[text.rfind(USER) :]


def _level_of(other: str, accepted: Mapping[Effort, str | None], distinct: Effort) -> Effort | None:
    """Return the effort that a prompt names at its first difference from another effort's prompt."""
    text = accepted[distinct] or ""
    start = next((i for i, (a, b) in enumerate(zip(other, text, strict=False)) if a != b), len(other))
    start = len(re.sub(r"\w+\Z", "", other[:start]))
    word = re.match(r"\w*", other[start:])
    named = (word.group() if word else "").lower()
    return next((effort for effort in accepted if effort == named), None)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other
