"""Events of a streamed transcript, without a server."""

from __future__ import annotations

import json
from typing import Any

from openai.types.audio import TranscriptionTextDeltaEvent

from greenroom.http.openai.transcription import TranscriptEvents
from greenroom.schemas.events.events import Failed, Finished, PromptProgress, Timing, Usage
from greenroom.schemas.events.result_events import Recording, Segment
from greenroom.schemas.problems import invalid
from greenroom.schemas.wire.openai_endpoints import TranscriptionRequest


def document(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    found: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return found


def test_a_client_that_waits_is_sent_events_and_no_comments() -> None:
    events = TranscriptEvents(TranscriptionRequest("default"), "transcribe")
    sent = [
        events.heartbeat(),
        events.event(Segment(" ", 0.0, 0.1)),
        events.event(Segment(" One", 0.1, 1.0)),
        events.heartbeat(),
        events.event(Segment(" two", 1.0, 2.0)),
    ]
    text = "".join(TranscriptionTextDeltaEvent.model_validate(document(event)).delta for event in sent)
    finished = document(events.event(Finished("stop", Usage(heard=2.0), Timing())))
    assert (finished["type"], finished["text"], text) == ("transcript.text.done", "One two", "One two")
    assert events.finished


def test_a_verbose_stream_tells_its_progress_and_ends_with_the_whole_document() -> None:
    wire = TranscriptionRequest("default", response_format="verbose_json")
    events = TranscriptEvents(wire, "translate")
    told = document(events.event(PromptProgress(30, 90)))
    assert (told["delta"], told["prompt_progress"]) == ("", {"processed": 30, "total": 90})
    events.event(Recording(2.0, "fr"))
    events.event(Segment(" One", 0.0, 1.0))
    finished = document(events.event(Finished("stop", Usage(heard=2.0), Timing())))
    assert (finished["type"], finished["task"], finished["language"]) == (
        "transcript.text.done",
        "translate",
        "french",
    )
    assert [segment["text"] for segment in finished["segments"]] == [" One"]


def test_a_failure_is_an_event_that_ends_it() -> None:
    events = TranscriptEvents(TranscriptionRequest("default"), "transcribe")
    failed = document(events.event(Failed(invalid("`file` is cut off.", "file").problem)))
    assert failed["type"] == "error"
    assert events.finished
