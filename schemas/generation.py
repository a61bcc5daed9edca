"""Every generation parameter's type, range and default, in this one place (document 004)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from greenroom.schemas.problems import invalid

Overrides = Mapping[str, Any]
"""Parameters that somebody set, by field name of `GenerationParameters`; checked by `check`."""

Kind = Literal["integer", "number", "strings", "integers"]
"""What a client may send: for `strings` also one string."""


def _parameter(
    default: Any,
    kind: Kind,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    most: int | None = None,
) -> Any:
    """A field; `low` and `high` belong to its range, `above` does not, `most` bounds a list's length."""
    bounds = {"low": low, "high": high, "above": above, "most": most}
    return attrs.field(default=default, metadata={"kind": kind, "meaning": meaning, **bounds})


@attrs.frozen
class GenerationParameters:
    """How to continue a prompt."""

    max_tokens: int | None = _parameter(
        None,
        "integer",
        "Tokens to generate at most. By default half the context for chat and 16 for raw completions; "
        "more than the room that is left is clamped.",
        low=1,
    )
    temperature: float = _parameter(
        1.0,
        "number",
        "How freely to choose among likely tokens; 0 always takes the likeliest.",
        low=0,
        high=2,
    )
    top_p: float = _parameter(
        1.0, "number", "Only the smallest set of tokens with at least this probability.", above=0, high=1
    )
    top_k: int = _parameter(
        0, "integer", "Only that many of the likeliest tokens; 0 is off.", low=0, high=2**31 - 1
    )
    min_p: float = _parameter(
        0.0,
        "number",
        "Only tokens at least this fraction as likely as the likeliest; 0 is off.",
        low=0,
        high=1,
    )
    stop: tuple[str, ...] = _parameter(
        (), "strings", "Strings that end the answer; they are not part of it.", most=16
    )
    stop_token_ids: tuple[int, ...] = _parameter(
        (), "integers", "Further tokens that end the answer.", low=0, high=2**31 - 1, most=256
    )
    thinking_budget: int | None = _parameter(
        None,
        "integer",
        "Tokens that a thought may take before it is ended; by default as many as the model wants.",
        low=0,
        high=2**31 - 1,
    )


def check(name: str, value: Any, field: str | None = None) -> Any:
    """The value, converted to the parameter's own type.

    Args:
        name: Field of `GenerationParameters`.
        field: What the client calls it, for the error.

    Raises:
        ProblemError: 400 that names field, value and range.
    """
    shown = field or name
    metadata = attrs.fields_dict(GenerationParameters)[name].metadata
    match metadata["kind"]:
        case "strings":
            return _strings(shown, value, metadata)
        case "integers":
            if not isinstance(value, list | tuple) or len(value) > metadata["most"]:
                raise _refused(shown, value, metadata)
            return tuple(_number(f"{shown}[{i}]", item, metadata) for i, item in enumerate(value))
        case _:
            return _number(shown, value, metadata)


def allowed(metadata: Mapping[str, Any]) -> str:
    """The values that a parameter takes, in words, e.g. `a number from 0 to 2`."""
    low, high, above = metadata["low"], metadata["high"], metadata["above"]
    lower = f" above {above:g}" if above is not None else f" from {low:g}" if low is not None else ""
    upper = "" if high is None else f" and at most {high:g}" if above is not None else f" to {high:.0f}"
    upper = upper or (" up" if low is not None else "")
    match metadata["kind"]:
        case "strings":
            return f"a string or a list of at most {metadata['most']} strings, none of them empty"
        case "integers":
            return f"a list of at most {metadata['most']} integers{lower}{upper}"
        case "integer":
            return f"an integer{lower}{upper}"
        case _:
            return f"a number{lower}{upper}"


def resolve(request: Overrides, settings: Overrides, model: Overrides) -> GenerationParameters:
    """Request over settings over the model's generation_config.json over the defaults."""
    return GenerationParameters(**{**model, **settings, **request})


def _number(shown: str, value: Any, metadata: Mapping[str, Any]) -> int | float:
    whole = metadata["kind"] in ("integer", "integers")
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise _refused(shown, value, metadata)
    low, high, above = metadata["low"], metadata["high"], metadata["above"]
    inside = (low is None or value >= low) and (above is None or value > above)
    if not (inside and (high is None or value <= high) and (whole or math.isfinite(value))):
        raise _refused(shown, value, metadata)
    return value if whole else float(value)


def _strings(shown: str, value: Any, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, list | tuple) or len(strings) > metadata["most"]:
        raise _refused(shown, value, metadata)
    if not all(isinstance(string, str) and string for string in strings):
        raise _refused(shown, value, metadata)
    return tuple(strings)


def _refused(shown: str, value: Any, metadata: Mapping[str, Any]) -> Exception:
    return invalid(f"`{shown}` is {_quoted(value)}, but it must be {allowed(metadata)}.", shown)


def _quoted(value: Any) -> str:
    """A client's value for an error message, short whatever it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an enormous integer"
    if isinstance(value, list | tuple | dict) and len(value) > 16:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} items"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
