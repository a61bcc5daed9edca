"""Events of a streamed transcript, without a server."""

from __future__ import annotations

import json

from openai.types.audio import TranscriptionTextDeltaEvent

from greenroom.http.openai.transcription.transcription_formatter import TranscriptEvents
from greenroom.schemas.events.events import Failed, Finished, Timing, Usage
from greenroom.schemas.events.result_events import Segment
from greenroom.schemas.problems import invalid


def document(event: bytes) -> dict[str, object]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    found: dict[str, object] = json.loads(event.removeprefix(b"data: "))
    return found


def test_a_client_that_waits_is_sent_events_and_no_comments() -> None:
    events = TranscriptEvents()
    sent = [
        events.heartbeat(),
        events.event(Segment(" One", 0.0, 1.0)),
        events.heartbeat(),
        events.event(Segment(" two", 1.0, 2.0)),
    ]
    text = "".join(TranscriptionTextDeltaEvent.model_validate(document(event)).delta for event in sent)
    finished = document(events.event(Finished("stop", Usage(heard=2.0), Timing())))
    assert (finished["type"], finished["text"], text) == ("transcript.text.done", "One two", "One two")
    assert events.finished


def test_a_failure_is_an_event_that_ends_it() -> None:
    events = TranscriptEvents()
    failed = document(events.event(Failed(invalid("`file` is cut off.", "file").problem)))
    assert failed["type"] == "error"
    assert events.finished
