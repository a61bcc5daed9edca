"""Detection of a model's reasoning switches, by rendering small conversations with its template."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from greenroom.engine.adapters.reasoning_switches import PromptChanges, ReasoningSwitches
from greenroom.schemas.messages.messages import EFFORTS, Effort, JsonObject

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
    """Efforts of a template, with their changes to the prompt."""

    efforts: Mapping[Effort, PromptChanges] = attrs.field(factory=dict)
    off: PromptChanges | None = None


def find_efforts(
    render: Render, reads: Callable[[str], bool], conversation: Sequence[Mapping[str, Any]], on: PromptChanges
) -> EffortLevels:
    """Return the efforts that the template knows. `reads`: function that returns whether the template may
    read an option of that name; `conversation`: messages that end with a user turn with the text `USER`.
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


_OPTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", True, False),
    ("thinking", True, False),
    ("reasoning", True, False),
    ("thinking_mode", "enabled", "disabled"),
    ("thinking_mode", "thinking", "chat"),
    ("thinking_option", "on", "off"),
)
"""Template options that switch reasoning, with their values for on and off; the first match is used."""

_BUDGET_OPTION = "thinking_budget"

_PRESERVING: tuple[tuple[str, Any, Any], ...] = (
    ("preserve_thinking", True, False),
    ("keep_past_thinking", True, False),
    ("keep_cots", True, False),
    ("clear_thinking", False, True),
    ("truncate_history_thinking", False, True),
    ("drop_thinking", False, True),
    ("think_render_option", "all", "lastthink"),
)
"""Template options that keep the reasoning of earlier turns, with their values for on and off."""

_WORDS = (("/think", "/no_think"), ("detailed thinking on", "detailed thinking off"))
"""Words in the system message that some templates look for."""

_USER = {"role": "user", "content": USER}
_SYSTEM, _ANSWER, _REASONING = "zqsystem", "zqanswer", "zqthought"


def find_switches(
    render: Render,
    source: str | None,
    markers: tuple[tuple[str, str], ...],
    *,
    takes_system: bool = True,
    known: ReasoningSwitches | None = None,
) -> ReasoningSwitches:
    """Return the reasoning switches of a template.

    Args:
        source: Source of the template; None if it is code, which may read any option.
        takes_system: True if the template shows a system message.
        known: Switches of the model's family, for templates that reveal none.
    """

    def reads(name: str) -> bool:
        return source is None or re.search(rf"\b{name}\b", source) is not None

    on, off = _find_option(render, reads)
    budget = _BUDGET_OPTION if reads(_BUDGET_OPTION) and _switches(render, {}, {_BUDGET_OPTION: 0}) else None
    if off is None and budget is not None:
        on, off = PromptChanges(), PromptChanges({budget: 0})
    if on is not None and on.options and takes_system:
        on = _with_system(render, on)
    levels = find_efforts(render, reads, [_USER], on or PromptChanges())
    if off is None and levels.off is not None:
        off, on = levels.off, levels.efforts.get("high", on)
    efforts = levels.efforts or (budget_levels(budget) if budget else {})
    if on is None and levels.efforts:
        on = PromptChanges()
    if off is None and not levels.efforts:
        on, off = _find_other_ways(render, source or "", markers, takes_system)
        if known is not None and markers and (off is None or off == PromptChanges()):
            on, off = known.on, known.off
    return ReasoningSwitches(on, off, efforts, budget, _find_preserving(render, reads, on, markers))


def _find_option(
    render: Render, reads: Callable[[str], bool]
) -> tuple[PromptChanges | None, PromptChanges | None]:
    for name, may_reason, answers in _OPTIONS:
        if reads(name) and _switches(render, {name: may_reason}, {name: answers}):
            return PromptChanges({name: may_reason}), PromptChanges({name: answers})
    return None, None


def _switches(render: Render, on: JsonObject, off: JsonObject) -> bool:
    reasoning, answering = render([_USER], **on), render([_USER], **off)
    return reasoning is not None and answering is not None and reasoning != answering


def _with_system(render: Render, on: PromptChanges) -> PromptChanges:
    """Return the switch extended so that it works beside a client's system message too.

    That message may replace the template's instructions, which are then added to it.
    """
    system = {"role": "system", "content": _SYSTEM}
    off = {name: not value if isinstance(value, bool) else "" for name, value in on.options.items()}
    if render([system, _USER], **on.options) != render([system, _USER], **off):
        return on
    return PromptChanges(on.options, system=_own_system(render, on.options))


def _own_system(render: Render, options: Mapping[str, Any]) -> str:
    """Return the system message that the template writes by default."""
    own = render([_USER], **options)
    replaced = render([{"role": "system", "content": _SYSTEM}, _USER], **options)
    if own is None or replaced is None or replaced.count(_SYSTEM) != 1:
        return ""
    before, behind = replaced.split(_SYSTEM)
    whole = own.startswith(before) and own.endswith(behind) and len(own) > len(before) + len(behind)
    return own[len(before) : len(own) - len(behind)] if whole else ""


def _find_other_ways(
    render: Render, source: str, markers: tuple[tuple[str, str], ...], takes_system: bool
) -> tuple[PromptChanges | None, PromptChanges | None]:
    """Return the switches of a model whose template has no option for reasoning."""
    for words in _WORDS if takes_system else ():
        if _obeys(render, source, *words):
            return PromptChanges(system=words[0]), PromptChanges(system=words[1])
    if not markers:
        return None, PromptChanges()
    instructions = _own_system(render, {}) if takes_system else ""
    if any(start in instructions for start, _ in markers):
        return PromptChanges(system=instructions), PromptChanges(blank_system=True)
    closed = _closed_reasoning(render, markers)
    if closed is None and not any(end in source for _, end in markers):
        return None, PromptChanges()  # Nothing shows that the model reasons.
    return PromptChanges(), None if closed is None else PromptChanges(prompt_end=closed)


def _obeys(render: Render, source: str, on: str, off: str) -> bool:
    """Return whether two words change the rendering, apart from being copied into it."""
    if on not in source and off not in source:
        return False
    told = [render([{"role": "system", "content": f"{_SYSTEM} {word}"}, _USER]) for word in (on, off)]
    bare = [
        None if text is None else text.replace(word, "") for text, word in zip(told, (on, off), strict=True)
    ]
    return None not in bare and bare[0] != bare[1]


def _closed_reasoning(render: Render, markers: tuple[tuple[str, str], ...]) -> str | None:
    """Return the text that adds empty reasoning to a prompt; None if the model's form is unknown."""
    prompt = render([_USER]) or ""
    history = render([_USER, {"role": "assistant", "content": _ANSWER}, _USER]) or ""
    before_answer = history.partition(_ANSWER)[0]
    for start, end in markers:
        empty = re.search(rf"{re.escape(start)}\s*{re.escape(end)}\s*\Z", before_answer)
        if prompt.rstrip().endswith(start):
            opened = prompt[len(prompt.rstrip()) :]
            shown = empty.group().removeprefix(start + opened) if empty else ""
            if shown.lstrip().startswith(end):
                return shown
            return f"\n{end}\n\n" if "\n" in opened else end
        if empty is not None:
            return empty.group()
    return None


def _find_preserving(
    render: Render,
    reads: Callable[[str], bool],
    on: PromptChanges | None,
    markers: tuple[tuple[str, str], ...],
) -> dict[bool, JsonObject]:
    start, end = markers[0] if markers else ("<think>", "</think>")
    answers: tuple[dict[str, Any], ...] = (
        {"role": "assistant", "content": _ANSWER, "reasoning_content": _REASONING, "reasoning": _REASONING},
        {"role": "assistant", "content": f"{start}{_REASONING}{end}{_ANSWER}"},
    )
    options = {} if on is None else on.options
    for name, keep, drop in _PRESERVING:
        for answer in answers if reads(name) else ():
            shown, hidden = (
                render([_USER, answer, _USER], **{**options, name: value}) for value in (keep, drop)
            )
            if _REASONING in (shown or "") and hidden is not None and _REASONING not in hidden:
                return {True: {name: keep}, False: {name: drop}}
    return {}
