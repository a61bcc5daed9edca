"""Arguments enclosed in tags one by one, with unquoted strings."""

from __future__ import annotations

import json
import re
from typing import Any

from greenroom.engine.parsers.markers import skip_space
from greenroom.engine.parsers.parsed_call import Malformed, Unclosed
from greenroom.engine.parsers.values.json_calls import dump_json, normalize_object, read_value
from greenroom.engine.parsers.values.offered_tools import OfferedTools


def read_tagged_arguments(
    name: str,
    text: str,
    position: int,
    offered: OfferedTools,
    before: re.Pattern[str],
    behind: re.Pattern[str],
    foreign: re.Pattern[str] | None = None,
) -> tuple[str, int]:
    """Return the arguments of a call as JSON text, and the end of the last one.

    Some models write them as one JSON object instead.

    Args:
        name: Tool whose schema decides the type of a value.
        before: Pattern of the text before a value. Its group `key` is the argument's name; if it has a group
            `string` that is `true`, the value is a string whatever the schema says.
        behind: Pattern of the text after a value. An end tag without another argument or the call's end
            behind it is part of the value.
        foreign: Pattern that no value may contain.

    Raises:
        Unclosed: A value has no end.
        Malformed: A name occurs twice, so a value would be lost, or a value matches `foreign`.
    """
    at = skip_space(text, position)
    if text.startswith("{", at):
        _, ended = read_value(text, at)
        return normalize_object(text[at:ended]), skip_space(text, ended)
    arguments: dict[str, Any] = {}
    while key := before.match(text, position):
        end = behind.search(text, key.end())
        if end is None:
            raise Unclosed("a value has no end")
        argument, value = key["key"].strip(), text[key.end() : end.start()]
        if argument in arguments:
            raise Malformed("an argument comes twice")
        if foreign is not None and foreign.search(value):
            raise Malformed("a value holds the tags of another")
        is_string = key.groupdict().get("string") == "true"
        arguments[argument] = value if is_string else offered.parse_value(name, argument, value)
        position = end.end()
    return dump_json(arguments), position


def argument_pairs(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call in the history; None if they are not a JSON object.

    Args:
        arguments: Text sent by the client, which may be invalid JSON.
    """
    try:
        pairs = dict(json.loads(arguments or "{}"))
        dump_json(pairs)
    except (ValueError, TypeError, RecursionError, Malformed):
        return None
    return pairs


def written_value(value: object) -> str:
    """Return a value as text between tags: an unquoted string, or JSON."""
    return value if isinstance(value, str) else dump_json(value)
