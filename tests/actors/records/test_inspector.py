"""Tests of the inspector's ring: bounded in number and in bytes, whatever clients send."""

from __future__ import annotations

from greenroom.actors.records.inspector import Inspector, inspection_body
from greenroom.schemas.events.events import Finished, TextDelta, Usage
from greenroom.schemas.events.result_events import ToolResult
from greenroom.schemas.messages.messages import ContentPart, ImagePart, TextPart


def test_many_bytes_push_out_older_requests_and_no_request_takes_all() -> None:
    inspector = Inspector(100, budget=40_000)
    for number in range(30):
        inspector.begin(f"req_{number}", "POST /v1/x", b"a" * 50_000, 50_000)
        inspector.prompt(f"req_{number}", tuple(range(50_000)), "b" * 50_000)
        for _ in range(200):
            inspector.event(f"req_{number}", TextDelta("c" * 500))
        assert inspector.nbytes <= 40_000
    [*_, latest] = reversed(inspector.listed())
    assert latest.request_id == "req_29"
    assert 0 < latest.nbytes <= inspector.share
    assert latest.left_out > 0
    assert inspector.nbytes == sum(record.nbytes for record in inspector.listed())


def test_results_of_tools_are_counted() -> None:
    inspector = Inspector(1, budget=40_000)
    inspector.begin("one", "POST /v1/x", b"", 0)
    parts: tuple[ContentPart, ...] = (TextPart("d" * 50_000), ImagePart(b"e" * 50_000), TextPart("short"))
    for part in parts:
        inspector.event("one", ToolResult("call", (part,)))
    assert inspector.listed()[0].left_out == 2


def test_a_request_that_left_the_ring_is_ignored() -> None:
    inspector = Inspector(1)
    inspector.begin("one", "POST /v1/x", b"{}", 2)
    inspector.begin("two", "POST /v1/x", b"{}", 2)
    inspector.event("one", TextDelta("x"))
    inspector.end("one", {}, None)
    inspector.answered("one", 200)
    inspector.close("one")
    assert inspector.find("one") is None
    found = inspector.find("2")
    assert found is not None
    assert found.request_id == "two"


def test_raw_output_and_tokens_are_shown_by_choice() -> None:
    inspector = Inspector(1)
    inspector.begin("one", "POST /v1/x", b"{}", 2)
    for index in (1, 0):
        inspector.event("one", Finished("stop", Usage(), index=index, raw=f"<{index}>", tokens=(index,)))
    record = inspector.find("one")
    assert record is not None
    shown = inspection_body(record)
    assert shown["outputs"] == [{"index": index, "raw": f"<{index}>", "tokens": [index]} for index in (0, 1)]
    assert "raw" not in shown["events"][0]
