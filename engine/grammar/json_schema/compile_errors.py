"""The place in a checked schema, and our words, for what llguidance cannot compile."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, Final

from greenroom.engine.grammar.cost.limits import parser_limits
from greenroom.engine.grammar.json_schema.composition import subschemas
from greenroom.engine.grammar.json_schema.json_path import JsonPath
from greenroom.engine.grammar.json_schema.keyword_values import refusal
from greenroom.engine.grammar.vocabulary.c_interface import grammar_error
from greenroom.engine.grammar.vocabulary.single_bytes import single_bytes
from greenroom.schemas.problems import ProblemError

_MAX_TRIALS: Final = 100
"""Limit on the subschemas that are compiled to find a fault's place."""


def find_fault(schema: Any, param: str) -> tuple[ProblemError, dict[str, Any], str] | None:
    """Return the 400 for a checked schema that llguidance cannot compile; None if it can.

    Args:
        schema: Checked schema.
        param: Path of the schema in the request.

    Returns:
        Error that names the place, smallest subschema found to fail, and its keyword if that is known.
    """
    found = _error(schema)
    if not found:
        return None
    kind = _kind(found)
    holder, path, pieces = schema if isinstance(schema, dict) else {}, JsonPath(param), param
    definitions = {name: holder[name] for name in ("$defs", "definitions") if name in holder}
    for part, place in islice(subschemas(schema, path), 1, _MAX_TRIALS):
        if str(place).startswith(pieces) and _kind(error := _error({**definitions, **part})) == kind:
            holder, path, pieces, found = part, place, str(place), error
    if "patternProperty" in kind:
        why = "has patterns that may match the same name: make them exclude one another"
        word = "patternProperties"
    elif kind.startswith("min/max"):
        why = "can be honoured only if all named properties are required, or if no others are allowed"
        word = "minProperties" if "minProperties" in holder else "maxProperties"
    elif kind.startswith("Unable to determine if regex"):
        why = "is too complex to be honoured beside the other keywords of its text"
        word = next((name for name in ("maxLength", "minLength", "pattern") if name in holder), "")
    elif "regex parse error" in found:
        why = "is no valid regular expression"
        word = next((name for name in ("pattern", "patternProperties") if name in holder), "")
    else:
        reason = found.partition(": ")[2] or found
        why = "can be satisfied by no value" if kind == "Unsatisfiable schema" else "cannot be honoured"
        why += "" if "Regex" in reason else f": {reason}"
        word = ""
    return refusal(path.key(word) if word else path, why, "unsupported_schema"), holder, word


def _error(schema: Any) -> str:
    """Return the first line of llguidance's error; empty if there is none."""
    grammar = json.dumps({"grammars": [{"json_schema": schema}]})
    return grammar_error(single_bytes(), grammar, parser_limits()).partition("\n")[0]


def _kind(error: str) -> str:
    return error.partition(":")[0] if error.startswith("Unsatisfiable") else error
