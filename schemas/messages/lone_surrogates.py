"""Search for halves of surrogate pairs, which Python's strings may hold but no Unicode encoding can express.

Requests over HTTP have none: the decoder of JSON replaces them. A program that uses Greenroom as a library
may pass any string, such as one that it cut in the middle of an emoji.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.schemas.problems import ProblemError, invalid

_LONE = re.compile("[\ud800-\udfff]")


def check_text(field: str, value: Any) -> None:
    """Check that all strings in a value can be encoded.

    Args:
        field: Name of the value, for errors.
        value: A string, a message, or a collection of these, nested to any depth.

    Raises:
        ProblemError: A string holds half of a surrogate pair; the problem names its field.
    """
    pending: list[tuple[str, Any]] = [(field, value)]
    while pending:
        name, found = pending.pop()
        match found:
            case str():
                if not found.isascii() and _LONE.search(found):
                    raise lone_surrogate(name)
            case Mapping():
                pending += ((f"the keys of {name}", key) for key in found)
                pending += ((f"{name}[{key!r}]", inner) for key, inner in found.items())
            case list() | tuple():
                pending += ((f"{name}[{index}]", inner) for index, inner in enumerate(found))
            case _ if attrs.has(type(found)):
                for attribute in attrs.fields(type(found)):
                    inner = getattr(found, attribute.name)
                    if not isinstance(inner, bytes | int | float):
                        pending.append((f"{name}.{attribute.name}" if name else attribute.name, inner))


def lone_surrogate(field: str) -> ProblemError:
    return invalid(f"`{field:.200}` contains half of a surrogate pair, which is not valid text.", field)
