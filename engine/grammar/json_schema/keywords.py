"""The JSON Schema keywords that a grammar can enforce (listed in notes/structured-output.md).

Each was tested against llguidance: constrained answers validate. All others are refused with their path,
because a silently dropped constraint looks enforced.
"""

from __future__ import annotations

from typing import Final

SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value maps names to schemas."""

SCHEMA_LISTS: Final = ("prefixItems", "anyOf", "oneOf", "allOf")
"""Keywords whose value is a list of schemas."""

SINGLE_SCHEMAS: Final = ("additionalProperties", "additionalItems")
"""Keywords whose value is one schema."""

COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")

NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

SUPPORTED: Final = frozenset(
    {
        *SCHEMA_MAPS,
        *SCHEMA_LISTS,
        *SINGLE_SCHEMAS,
        *COUNTS,
        *NUMBERS,
        *("$ref", "const", "enum", "format", "items", "pattern", "required", "type"),
    }
)
"""Keywords that are enforced on the answer."""

ANNOTATIONS: Final = frozenset(
    {
        *("$anchor", "$comment", "$id", "$schema", "$vocabulary", "contentEncoding", "contentMediaType"),
        *("default", "deprecated", "description", "discriminator", "example", "examples", "id"),
        *("readOnly", "title", "writeOnly"),
    }
)
"""Keywords without effect on validity, as are all names that start with `x-`."""

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
