"""The type, range and default of every generation parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import attrs

from greenroom.schemas.problems import invalid

Overrides = Mapping[str, Any]
"""Explicitly set parameters, by field name of `GenerationParameters`; validated by `check`."""

Kind = Literal["integer", "number", "boolean", "strings", "integers", "biases"]
"""The JSON type of a parameter: `strings` also accepts one string; `biases` maps token ids to numbers."""


def _parameter(
    default: Any,
    kind: Kind,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    most: int | None = None,
    longest: int | None = None,
) -> Any:
    """Return an attrs field with a range: `low` and `high` are inclusive bounds, `above` is exclusive.

    Args:
        most: Maximum number of list items.
        longest: Maximum string length in characters.
    """
    bounds = {"low": low, "high": high, "above": above, "most": most, "longest": longest}
    return attrs.field(default=default, metadata={"kind": kind, "meaning": meaning, **bounds})


@attrs.frozen
class GenerationParameters:
    """Parameters that control sampling and the length of an answer."""

    max_tokens: int | None = _parameter(
        None,
        "integer",
        "Largest number of tokens to generate. By default half the context for chat and 16 for raw "
        "completions; what exceeds the remaining context is clamped.",
        low=1,
    )
    temperature: float = _parameter(
        1.0, "number", "Randomness of sampling; 0 always takes the most likely token.", low=0, high=2
    )
    top_p: float = _parameter(
        1.0,
        "number",
        "Sample from the smallest set of tokens with at least this probability; 0 takes the likeliest one.",
        low=0,
        high=1,
    )
    top_k: int = _parameter(
        0, "integer", "Sample from this many most likely tokens; 0 and -1 are off.", low=-1, high=2**31 - 1
    )
    min_p: float = _parameter(
        0.0,
        "number",
        "Sample from tokens at least this fraction as likely as the most likely; 0 is off.",
        low=0,
        high=1,
    )
    stop: tuple[str, ...] = _parameter(
        (), "strings", "Strings that end the answer; they are not part of it.", most=16, longest=1000
    )
    stop_token_ids: tuple[int, ...] = _parameter(
        (), "integers", "More tokens that end the answer.", low=0, high=2**31 - 1, most=256
    )
    min_tokens: int = _parameter(
        0,
        "integer",
        "Number of tokens before which no end token is sampled; stop strings still end the answer.",
        low=0,
        high=2**31 - 1,
    )
    ignore_eos: bool = _parameter(
        False, "boolean", "Never sample an end token, so that the answer has `max_tokens`."
    )
    seed: int | None = _parameter(
        None,
        "integer",
        "Makes sampling repeatable: the same request gets the same answer, whatever runs beside it.",
    )
    n: int = _parameter(
        1, "integer", "Number of answers to the prompt, which is computed once.", low=1, high=16
    )
    presence_penalty: float = _parameter(
        0.0, "number", "Subtracted from the logits of tokens that the answer already has.", low=-2, high=2
    )
    frequency_penalty: float = _parameter(
        0.0,
        "number",
        "Subtracted from a token's logit for each time that the answer already has it.",
        low=-2,
        high=2,
    )
    repetition_penalty: float = _parameter(
        1.0,
        "number",
        "Divides positive logits, and multiplies negative ones, of tokens in the prompt or the answer; "
        "1 is off.",
        above=0,
        high=10,
    )
    logit_bias: tuple[tuple[int, float], ...] = _parameter(
        (),
        "biases",
        "Added to the logits of these tokens; -100 forbids a token.",
        low=-100,
        high=100,
        most=2048,
    )
    xtc_probability: float = _parameter(
        0.0,
        "number",
        "Probability of leaving out the most likely tokens, so that a less usual one is sampled; 0 is off.",
        low=0,
        high=1,
    )
    xtc_threshold: float = _parameter(
        0.1,
        "number",
        "Tokens at least this probable may be left out, except for the least probable of them.",
        above=0,
        high=0.5,
    )
    logprobs: bool = _parameter(
        False, "boolean", "Return the log-probability of every token of the visible answer."
    )
    top_logprobs: int = _parameter(
        0,
        "integer",
        "With `logprobs`: number of most likely tokens to return at each position.",
        low=0,
        high=20,
    )
    thinking_budget: int | None = _parameter(
        None,
        "integer",
        "Token budget of the reasoning, which is then ended; by default as much as the model wants.",
        low=0,
        high=2**31 - 1,
    )


def check(name: str, value: Any, field: str | None = None) -> Any:
    """Validate a value and return it in the parameter's own type.

    Args:
        name: Field name in `GenerationParameters`.
        field: The client's name of the field, for the error.

    Raises:
        ProblemError: 400 that names field, value and range.
    """
    shown = field or name
    metadata = attrs.fields_dict(GenerationParameters)[name].metadata
    match metadata["kind"]:
        case "strings":
            return _strings(shown, value, metadata)
        case "boolean":
            if not isinstance(value, bool):
                raise _refused(shown, value, metadata)
            return value
        case "biases":
            return _biases(shown, value, metadata)
        case "integers":
            if not isinstance(value, list | tuple) or len(value) > metadata["most"]:
                raise _refused(shown, value, metadata)
            return tuple(_number(f"{shown}[{i}]", item, metadata) for i, item in enumerate(value))
        case _:
            return _number(shown, value, metadata)


def allowed(metadata: Mapping[str, Any]) -> str:
    """Return a description of a parameter's allowed values, e.g. `a number from 0 to 2`."""
    low, high, above = metadata["low"], metadata["high"], metadata["above"]
    lower = f" above {above:g}" if above is not None else f" from {low:g}" if low is not None else ""
    shown = "" if high is None else f"{high:.0f}" if high == int(high) else f"{high:g}"
    upper = "" if high is None else f" and at most {shown}" if above is not None else f" to {shown}"
    upper = upper or (" up" if low is not None else "")
    match metadata["kind"]:
        case "strings":
            strings = f"strings, each of 1 to {metadata['longest']} characters"
            return f"a string or a list of at most {metadata['most']} {strings}"
        case "boolean":
            return "true or false"
        case "biases":
            return f"an object with at most {metadata['most']} token ids and for each a number{lower}{upper}"
        case "integers":
            return f"a list of at most {metadata['most']} integers{lower}{upper}"
        case "integer":
            return f"an integer{lower}{upper}"
        case _:
            return f"a number{lower}{upper}"


def resolve(request: Overrides, settings: Overrides, model: Overrides) -> GenerationParameters:
    """Merge parameters: request over settings over the model's generation_config.json over the defaults."""
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
    if not all(isinstance(string, str) and 0 < len(string) <= metadata["longest"] for string in strings):
        raise _refused(shown, value, metadata)
    return tuple(strings)


def _biases(shown: str, value: Any, metadata: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """Return pairs of token id and logit bias, sorted by id; JSON has the ids as strings."""
    if isinstance(value, tuple):
        value = dict(value)
    if not isinstance(value, Mapping) or len(value) > metadata["most"]:
        raise _refused(shown, value, metadata)
    biases = {}
    for name, bias in value.items():
        ident = str(name)
        if not (ident.isascii() and ident.isdigit() and len(ident) <= 10):
            raise _refused(shown, value, metadata)
        biases[int(ident)] = float(_number(f"{shown}.{ident}", bias, metadata))
    return tuple(sorted(biases.items()))


def _refused(shown: str, value: Any, metadata: Mapping[str, Any]) -> Exception:
    return invalid(f"`{shown}` is {_quoted(value)}, but it must be {allowed(metadata)}.", shown)


def _quoted(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return "an enormous integer"
    if isinstance(value, list | tuple | dict) and len(value) > 16:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} items"
    if isinstance(value, str):
        value = value[:81]
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


class Parameters(TypedDict, total=False):
    """Generation parameters that a request may set; `GenerationParameters` has their meanings and ranges."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    min_tokens: int
    ignore_eos: bool
    seed: int
    n: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Mapping[int, float]
    xtc_probability: float
    xtc_threshold: float
    logprobs: bool
    top_logprobs: int
    thinking_budget: int


def parameters(**values: Unpack[Parameters]) -> Overrides:
    """Return parameters for an `InferenceRequest`; omitted ones come from the settings or the model.

    Raises:
        TypeError: There is no parameter of that name.
        ProblemError: A value is out of its range; the problem names the range.
    """
    if unknown := values.keys() - Parameters.__annotations__.keys():
        raise TypeError(f"parameters() got an unexpected keyword argument '{min(unknown)}'")
    return {name: check(name, value) for name, value in values.items()}
