"""The JSON Schema keywords that a grammar can enforce (listed in notes/structured-output.md).

Each was tested against llguidance: constrained answers validate. Other keywords of any draft are refused with
their path, because a silently dropped constraint looks enforced. Words of no draft are annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value maps names to schemas."""

SCHEMA_LISTS: Final = ("prefixItems", "anyOf", "oneOf", "allOf")
"""Keywords whose value is a list of schemas."""

SINGLE_SCHEMAS: Final = ("additionalProperties", "additionalItems")
"""Keywords whose value is one schema."""

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

FORMAT_PATTERNS: Final = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[tT]{_TIME}$",
}
"""Patterns of formats that llguidance enforces too loosely: it allows 29 February always, and second 60."""

FORMAT_MAX_LENGTHS: Final = {"hostname": 253, "email": 254}
"""Length limits that llguidance's patterns of these formats lack (RFC 1035, RFC 5321)."""
