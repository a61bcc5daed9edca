"""Transcripts as SubRip and WebVTT subtitles (https://www.w3.org/TR/webvtt1/)."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.schemas.events.result_events import Segment

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
