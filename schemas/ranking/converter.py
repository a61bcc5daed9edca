"""The converter of the wire types of ranking, to which each of their modules adds its unions."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

RANKING = make_wire_converter()
