"""A complete transcript, independent of any protocol, also as subtitles (SRT and WebVTT)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

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


_LEAST = 0.001
"""Shortest cue in seconds: players omit cues of zero length."""


def srt(segments: Iterable[Segment]) -> str:
    """Return the segments in SubRip format."""
    return "".join(
        f"{number}\n{_clock(segment.start, ',')} --> {_clock(_end(segment), ',')}\n{_line(segment.text)}\n\n"
        for number, segment in enumerate(segments, start=1)
    )


def vtt(segments: Iterable[Segment]) -> str:
    """Return the segments in WebVTT format."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(segment.start, '.')} --> {_clock(_end(segment), '.')}\n{_escaped(_line(segment.text))}\n\n"
        for segment in segments
    )


def _end(segment: Segment) -> float:
    return max(segment.end, segment.start + _LEAST)


def _line(text: str) -> str:
    """Return text on one line without arrows: an empty line would end its cue, an arrow start one."""
    return " ".join(text.split()).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, mark: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{mark}{milliseconds % 1000:03d}"
