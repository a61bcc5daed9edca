"""The cattrs converter of the Responses API's wire types; their modules register their hooks on it."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

RESPONSES = make_wire_converter()
