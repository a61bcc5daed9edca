"""Reasoning settings of a request: on or off, effort, budget and visibility."""

from __future__ import annotations

from greenroom.schemas.anthropic.messages import PromptRequest
from greenroom.schemas.messages.messages import Message
from greenroom.schemas.messages.reasoning import EFFORTS, Effort, ReasoningSettings, effort_named
from greenroom.schemas.problems import invalid, missing

ANTHROPIC_EFFORTS = EFFORTS[1:]
"""Effort levels of Anthropic's API: all but `minimal`."""
LEAST_BUDGET = 1_024
"""Smallest reasoning budget in tokens that Anthropic's API accepts."""
INTERLEAVED = "interleaved-thinking"
"""Prefix of the beta under which a budget may exceed `max_tokens`, since it covers several responses."""


def parse_thinking(wire: PromptRequest, messages: tuple[Message, ...]) -> ReasoningSettings:
    """Return the reasoning settings.

    Reasoning is off by default: clients that expect it ask for it.

    Args:
        messages: Messages of the request.

    Raises:
        ProblemError: 400 that names the field.
    """
    effort, preserved = _effort(wire), _preserved(wire)
    match wire.thinking.type if wire.thinking else "disabled":
        case "enabled" | "adaptive":
            return ReasoningSettings(True, effort, preserved)
        case "disabled":
            return ReasoningSettings(False, None, preserved)
        case "between_tools":
            thinks = bool(messages) and messages[-1].role == "tool"
            return ReasoningSettings(thinks, effort if thinks else None, preserved)
    detail = "`thinking.type` must be 'enabled', 'adaptive', 'between_tools' or 'disabled'."
    raise invalid(detail, "thinking.type")


def _effort(wire: PromptRequest) -> Effort | None:
    asked = wire.output_config.effort if wire.output_config else None
    effort = effort_named(asked)
    if asked is None or effort in ANTHROPIC_EFFORTS:
        return effort
    field = "output_config.effort"
    raise invalid(f"`{field}` must be one of {', '.join(map(repr, ANTHROPIC_EFFORTS))}.", field)


def _preserved(wire: PromptRequest) -> bool | None:
    """Return whether earlier turns keep their reasoning, from the only context edit that is supported."""
    preserved = None
    edits = wire.context_management.edits if wire.context_management else None
    for index, edit in enumerate(edits or ()):
        match edit:
            case {"type": "clear_thinking_20251015", "keep": "all" | {"type": "all"}}:
                preserved = True
            case {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}:
                preserved = False
            case {"type": "clear_thinking_20251015"} if edit.get("keep") is None:
                preserved = False
            case _:
                field = f"context_management.edits[{index}]"
                known = "'clear_thinking_20251015' that keeps 'all' or one turn"
                detail = f"`{field}` is not supported; only {known} is accepted."
                raise invalid(detail, field, "unsupported_parameter")
    return preserved


def hides_reasoning(wire: PromptRequest) -> bool:
    """Return whether the client wants reasoning blocks without their text.

    Raises:
        ProblemError: 400 that names the field.
    """
    display = wire.thinking.display if wire.thinking else None
    if display not in (None, "summarized", "omitted"):
        raise invalid("`thinking.display` must be 'summarized' or 'omitted'.", "thinking.display")
    return display == "omitted"


def check_budget(wire: PromptRequest, budget: int | None, max_tokens: int | None, betas: str) -> None:
    """Refuse a budget that Anthropic's API would refuse.

    Args:
        budget: Reasoning budget in tokens, if there is one.
        max_tokens: Limit on reasoning and response together, in tokens; None if only the prompt is counted.
        betas: Header `anthropic-beta`.

    Raises:
        ProblemError: 400 that names the field.
    """
    field = "thinking.budget_tokens"
    if wire.thinking is None or wire.thinking.type != "enabled":
        return
    if budget is None:
        raise missing(field)
    if budget < LEAST_BUDGET:
        raise invalid(f"`{field}` is {budget}, but must be at least {LEAST_BUDGET}.", field)
    if max_tokens is not None and budget >= max_tokens and INTERLEAVED not in betas:
        raise invalid(f"`{field}` is {budget}, but must be less than `max_tokens` ({max_tokens}).", field)
