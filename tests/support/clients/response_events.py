"""Events of a streamed response, as a client reads them."""

from __future__ import annotations

import json
from typing import Any


def read_events(data: bytes) -> list[dict[str, Any]]:
    """Return the events, after checking their names, their sequence numbers and the final [DONE]."""
    *blocks, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    events = []
    for block in blocks:
        name, line = block.split(b"\n")
        event = json.loads(line.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events
