"""The converter of the Responses API's wire types, to which each of their modules adds its unions."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

RESPONSES = make_wire_converter()
