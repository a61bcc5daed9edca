"""Stop reasons in Anthropic's terms."""

from __future__ import annotations

from greenroom.schemas.events.events import Finished


def stop_reason(finished: Finished, max_tokens: int) -> tuple[str, str | None]:
    """Return the stop reason, and the stop sequence if one ended the response.

    Args:
        max_tokens: Limit set by the client; a response that was cut off below it has filled the context
            window.
    """
    match finished.reason:
        case "tool_calls":
            return "tool_use", None
        case "length" if finished.usage.generated < max_tokens:
            return "model_context_window_exceeded", None
        case "length":
            return "max_tokens", None
        case "stop" if finished.stop is not None:
            return "stop_sequence", finished.stop
        case _:
            return "end_turn", None
