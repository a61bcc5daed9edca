"""Transcripts as subtitles: SubRip and WebVTT (https://www.w3.org/TR/webvtt1/)."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.schemas.events.result_events import Segment

_LEAST = 0.001
"""Seconds that a cue lasts at least: players leave out one that ends where it begins."""


def srt(segments: Iterable[Segment]) -> str:
    """Return the segments as SubRip has them."""
    return "".join(
        f"{number}\n{_clock(segment.start, ',')} --> {_clock(_end(segment), ',')}\n{_line(segment.text)}\n\n"
        for number, segment in enumerate(segments, start=1)
    )


def vtt(segments: Iterable[Segment]) -> str:
    """Return the segments as WebVTT has them."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(segment.start, '.')} --> {_clock(_end(segment), '.')}\n{_escaped(_line(segment.text))}\n\n"
        for segment in segments
    )


def _end(segment: Segment) -> float:
    return max(segment.end, segment.start + _LEAST)


def _line(text: str) -> str:
    """Return text in one line: an empty one would end its cue, and an arrow begins one."""
    return " ".join(text.split()).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clock(seconds: float, mark: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{mark}{milliseconds % 1000:03d}"
