"""Server-sent events as bytes (WHATWG HTML, section 9.2)."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.http.encoding.json_encoding import json_ascii

SERVER_SENT_EVENTS = "text/event-stream; charset=utf-8"


def data_event(document: Mapping[str, object]) -> bytes:
    return b"data: %b\n\n" % json_ascii(document)
