"""A complete transcript, independent of any protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from greenroom.http.media.audio.subtitles import srt, vtt
from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.result_events import Recording, Segment

Task = Literal["transcribe", "translate"]


@attrs.frozen
class Transcript:
    """The transcript of a recording."""

    task: Task
    recording: Recording
    segments: tuple[Segment, ...]
    usage: Usage

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()


def collected_transcript(task: Task, events: Sequence[object], usage: Usage) -> Transcript:
    """Assemble a transcript from events; the last `Recording` event is the most complete."""
    recordings = [event for event in events if isinstance(event, Recording)]
    segments = tuple(event for event in events if isinstance(event, Segment))
    return Transcript(task, recordings[-1] if recordings else Recording(usage.heard), segments, usage)


def plain_text(transcript: Transcript, form: str) -> str:
    """Return a transcript as subtitles (`srt`, `vtt`) or as plain text."""
    match form:
        case "srt":
            return srt(transcript.segments)
        case "vtt":
            return vtt(transcript.segments)
    return f"{transcript.text}\n"
