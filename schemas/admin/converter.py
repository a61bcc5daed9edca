"""The cattrs converter of the wire types for operators."""

from __future__ import annotations

from greenroom.schemas.wire import StrictConverter, make_wire_converter

ADMIN = make_wire_converter(StrictConverter)
