"""Checks and compilation of a tokenizer's `response_template`. This module imports transformers."""

from __future__ import annotations

from typing import Any

import regex  # type: ignore[import-untyped]
from transformers.utils.chat_parsing.response_templates import ResponseTemplate, load_response_template

from greenroom.engine.formats.response_template.bounded_patterns import is_cheap_to_compile

CALLS = "tool_calls"
_MAX_FIELDS = 16


def load_template(spec: Any) -> ResponseTemplate:
    """Return a template with compiled expressions.

    Raises:
        ValueError: The template is invalid, or its expressions might take long to compile.
    """
    if not isinstance(spec, dict) or not isinstance(spec.get("fields"), dict):
        raise ValueError("it is no object with `fields`")
    if len(spec["fields"]) > _MAX_FIELDS:
        raise ValueError("it has too many fields")
    if not all(map(is_cheap_to_compile, _texts(spec, 0))):
        raise ValueError("an expression is too long or nested too deep")
    template = load_response_template(spec)
    if CALLS not in template.fields:
        raise ValueError(f"it has no field `{CALLS}`")
    for field in template.fields.values():
        content_patterns(field)
    return template


def _texts(value: Any, depth: int) -> list[str]:
    """Return all texts in a template."""
    if depth > _MAX_FIELDS:
        raise ValueError("it is nested too deep")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item, depth + 1)]
    return [value] if isinstance(value, str) else []


def content_patterns(field: Any) -> list[Any]:
    """Return the expressions that transformers applies to the content of a region.

    Raises:
        ValueError: A part of the content has expressions of its own.
    """
    arguments = field.content_args if isinstance(field.content_args, dict) else {}
    inner = arguments.get("value_parser")
    if isinstance(inner, dict) and (inner.get("name") == "xml-inline" or inner.get("args", {})):
        raise ValueError("a value has expressions of its own")
    patterns = []
    if field.content == "xml-inline":
        patterns.append(arguments.get("tag_pattern", ""))
    if field.content == "json":
        delimiters = arguments.get("string_delims", [])
        patterns += [rf"{regex.escape(opened)}(.*?){regex.escape(closed)}" for opened, closed in delimiters]
    return [regex.compile(pattern, regex.DOTALL) for pattern in patterns]
