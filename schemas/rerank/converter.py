"""The cattrs converter of reranking's wire types; their modules register their hooks on it."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

RERANK_CONVERTER = make_wire_converter()
