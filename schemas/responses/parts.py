"""Content parts of items."""

from __future__ import annotations

from typing import Annotated, Any

import attrs

from greenroom.schemas.messages.messages import MAX_PARTS, JsonObject
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.wire import AtMost, WireError, structure, wrong_type


@attrs.frozen
class InputAudioParam:
    """An audio file, as base64."""

    data: str
    format: str


@attrs.frozen
class PartParam:
    """A content part of an item; `type` decides which fields it has."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    input_audio: InputAudioParam | None = None


@attrs.frozen
class Content:
    """The content of an item; a string on the wire becomes one part."""

    parts: tuple[PartParam, ...]


@attrs.frozen
class _OnePart:
    part: PartParam


def structure_part(part: JsonObject, field: str) -> PartParam:
    """Structure a single part from outside an item's content.

    Args:
        field: Request field of the part, for errors.

    Raises:
        ProblemError: 400 that names the invalid field.
    """
    try:
        return structure({"part": part}, _OnePart, RESPONSES).part
    except ProblemError as error:
        path = f"{field}{(error.problem.param or '').removeprefix('part')}"
        detail = error.problem.detail.replace(f"`{error.problem.param}`", f"`{path}`")
        raise invalid(detail, path, error.problem.code) from None


_Parts = Annotated[tuple[PartParam, ...], AtMost(MAX_PARTS)]


def _content(value: Any, _: Any) -> Content | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Content((PartParam("text", value),))
    if not isinstance(value, list):
        raise wrong_type("a string or an array of parts", value)
    return Content(RESPONSES.structure(value, _Parts))


def given(value: Any, hook: Any) -> Any:
    """Apply a structure hook to a value that must not be null.

    Raises:
        WireError: The value is null.
    """
    if value is None:
        raise WireError("must not be null")
    return hook(value, None)


RESPONSES.register_structure_hook(Content, lambda value, _: given(value, _content))
RESPONSES.register_structure_hook(Content | None, _content)
