"""The JSON Schema keywords that a grammar can enforce (listed in notes/structured-output.md).

Each was tested against llguidance: constrained answers validate. Other keywords of any draft are refused with
their path, because a silently dropped constraint looks enforced. Words of no draft are annotations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.patterns import JsonPath, portable_pattern, shown
from greenroom.schemas.problems import ProblemError, invalid

SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value maps names to schemas."""

SCHEMA_LISTS: Final = ("prefixItems", "anyOf", "oneOf", "allOf")  # Keywords whose value is a list of schemas

SINGLE_SCHEMAS: Final = ("additionalProperties", "additionalItems")  # Keywords whose value is one schema

COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")

BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

SUPPORTED: Final = frozenset(
    {
        *SCHEMA_MAPS,
        *SCHEMA_LISTS,
        *SINGLE_SCHEMAS,
        *COUNTS,
        *BOUNDS,
        *("$ref", "const", "enum", "format", "items", "multipleOf", "pattern", "required", "type"),
    }
)
"""Keywords that are enforced on the answer."""

_LIKENESS: Final = 0.85
"""Least likeness of a misspelled keyword, as `difflib` counts it: "mininum" has 0.86, "form" 0.8."""

UNENFORCED: Final = frozenset(
    {
        *("not", "if", "then", "else", "uniqueItems", "contains", "minContains", "maxContains"),
        *("propertyNames", "dependencies", "dependentRequired", "dependentSchemas"),
        *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
        *("disallow", "divisibleBy", "extends"),
    }
)
"""Keywords of all drafts that restrict values in ways that no grammar can hold."""

VACUOUS: Final[Mapping[str, tuple[Any, ...]]] = {
    "uniqueItems": (False,),
    "not": (False,),
    **dict.fromkeys(("propertyNames", "unevaluatedProperties", "unevaluatedItems"), (True, {})),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), ({},)),
}
"""Values with which a keyword that cannot be enforced constrains nothing."""

BESIDE: Final = {
    "if": {"then", "else"},
    "then": {"if"},
    "else": {"if"},
    "minContains": {"contains"},
    "maxContains": {"contains"},
}
"""Keywords that constrain nothing unless one of some others stands beside them."""

IN_PLACE: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
"""Keywords whose schemas describe the same value as the schema around them."""


def meant(word: str) -> str | None:
    """Return the keyword that a word looks like a misspelling of; None for any other word."""
    if not word[:1].isalpha() and word[:1] != "$":
        return None
    known = {keyword.lower(): keyword for keyword in SUPPORTED | UNENFORCED if len(keyword) > 3}
    plain = word.strip(" :").replace("_", "").replace("-", "").lower()
    near = get_close_matches(plain, known, 1, _LIKENESS)
    return known[near[0]] if near else None


TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

TYPES_OF: Final[Mapping[type, set[str]]] = {
    **{type(None): {"null"}, bool: {"boolean"}, int: {"integer", "number"}, float: {"integer", "number"}},
    **{str: {"string"}, list: {"array"}, dict: {"object"}},
}
"""Types that a value of a schema may have: 5.0 is an integer, too."""

FORMATS: Final = (
    *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"),
)
"""Values of `format` that are enforced on a string."""

_LEAP = r"(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)

FORMAT_PATTERNS: Final = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}[tT]{_TIME}$"}
"""Patterns of formats that llguidance enforces too loosely: it allows 29 February always, and second 60."""

FORMAT_MAX_LENGTHS: Final = {"hostname": 253, "email": 254}
"""Length limits that llguidance's patterns of these formats lack (RFC 1035, RFC 5321)."""


_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]|[\ud800-\udfff]")
_BEYOND_ANSWERS = 10**8  # Largest count that no answer reaches; clients write 2^31-1 for "any number"

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def refusal(path: JsonPath, why: str, code: str = "invalid_value") -> ProblemError:
    return invalid(f"{path} {why}", str(path), code)


def check_text(value: str, path: JsonPath) -> str:
    """Refuse control characters without a short JSON escape: `\\u` would give keys two spellings."""
    if _CONTROL.search(value):
        raise refusal(path, "holds a control character, which cannot be honoured", "unsupported_schema")
    return value


def check_number(value: Any, path: JsonPath) -> int | float:
    """Refuse a value that is not a number, or a number that a float cannot hold exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(path, "must be a number")
    if not abs(value) <= limits.MAX_EXACT_INTEGER:
        raise refusal(path, f"is {shown(value)}; numbers beyond 2**53 cannot be honoured exactly")
    return value


def multiple_units(value: float) -> tuple[int, int]:
    """Return a `multipleOf` as an integer in units of its last digit, and its number of decimals."""
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    units = int("".join(map(str, digits)))
    return (units, -exponent) if exponent < 0 else (units * 10**exponent, 0)


def is_countable(units: int, decimals: int) -> bool:
    """Return whether llguidance can enforce a `multipleOf`, with 32 bits and a limited number of states."""
    states = units
    while states and states % 10 == 0:
        states //= 10
    return states <= limits.MAX_MULTIPLE and units <= 10**8 and decimals <= limits.MAX_DECIMALS


def _multiple(value: Any, path: JsonPath) -> int | float:
    number = check_number(value, path)
    if math.copysign(1, number) < 0 or number == 0:
        raise refusal(path, "must be above 0")
    if not is_countable(*multiple_units(number)):
        most = f"{limits.MAX_MULTIPLE:,} units of the last digit, at most {limits.MAX_DECIMALS} decimals"
        raise refusal(path, f"is {shown(value)}; multiples up to {most} can be honoured")
    return number


def _bound(value: Any, path: JsonPath) -> Any:
    """Return a limit of numbers; one that is wider than every number we write becomes that number."""
    upper = path.segment.lower().endswith("maximum")
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) != math.inf:
        outwards = value if upper else -value
        if outwards > limits.MAX_EXACT_INTEGER:
            most = limits.MAX_INTEGER if outwards >= limits.MAX_INTEGER else limits.MAX_EXACT_INTEGER
            return most if upper else -most
    return check_number(value, path)


def _count(value: Any, path: JsonPath) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refusal(path, "must be a whole number from 0")
    if value > limits.MAX_COUNT and path.segment.startswith(".min"):
        raise refusal(path, f"is {shown(value)}; at most {limits.MAX_COUNT} can be honoured")
    return None if value >= _BEYOND_ANSWERS else min(value, limits.MAX_COUNT)


def _type(value: Any, path: JsonPath) -> Any:
    names = value if isinstance(value, list) else [value]
    known = bool(names) and all(isinstance(name, str) and name in TYPES for name in names)
    if not known:
        raise refusal(path, f"must be one or more of {', '.join(TYPES)}")
    return list(dict.fromkeys(names)) if isinstance(value, list) else value


def _required(value: Any, path: JsonPath) -> Any:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise refusal(path, "must be a list of property names")
    if len(value) > limits.MAX_PROPERTIES:
        raise refusal(path, f"names more than {limits.MAX_PROPERTIES} properties")
    if sum(map(len, value)) > limits.MAX_CHARACTERS:
        raise refusal(path, f"has more than {limits.MAX_CHARACTERS:,} characters")
    return [check_text(name, path) for name in value]


def _pattern(value: Any, path: JsonPath) -> str:
    if not isinstance(value, str):
        raise refusal(path, "must be a string")
    if _SURROGATE.search(value[: limits.MAX_PATTERN]):
        raise refusal(path, "holds half of a surrogate pair, which no text can")
    return portable_pattern(value, str(path))


def _format(value: Any, path: JsonPath) -> str | None:
    if not isinstance(value, str):
        raise refusal(path, "must be a string")
    return value if value in FORMATS else None


KEYWORD_CHECKS: Mapping[str, Callable[[Any, JsonPath], Any]] = {
    **dict.fromkeys(COUNTS, _count),
    **dict.fromkeys(BOUNDS, _bound),
    "multipleOf": _multiple,
    "type": _type,
    "required": _required,
    "pattern": _pattern,
    "format": _format,
}
"""Functions that return a keyword's checked value, or None if it constrains nothing, or raise its 400."""
