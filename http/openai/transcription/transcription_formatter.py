"""Formatting of a transcript as JSON, text or subtitles, streamed or complete."""

from __future__ import annotations

from typing import Any

from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS, data_event
from greenroom.http.errors.openai_errors import error_event
from greenroom.http.media.audio.language_names import language_name
from greenroom.http.media.audio.transcript import Task, Transcript, collected_transcript
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress, Usage
from greenroom.schemas.events.result_events import Recording, Segment
from greenroom.schemas.openai.transcriptions import TranscriptionRequest
from greenroom.schemas.problems import Problem

TEXT = "text/plain; charset=utf-8"
_TYPES = {"text": TEXT, "srt": TEXT, "vtt": TEXT}


def content_type(response_format: str) -> str | None:
    """Return the content type of a text format; None if the format is JSON."""
    return _TYPES.get(response_format)


def json_document(transcript: Transcript, wire: TranscriptionRequest) -> dict[str, Any]:
    """Return a transcript as `json` or `verbose_json`."""
    usage = usage_of(transcript.usage)
    if wire.response_format != "verbose_json":
        return {"text": transcript.text, "usage": usage}
    recording = transcript.recording
    document: dict[str, Any] = {
        "task": transcript.task,
        "language": language_name(recording.language),
        "duration": recording.duration,
        "text": transcript.text,
    }
    if wire.wants_words:
        document["words"] = [
            {"word": word.text.strip(), "start": word.start, "end": word.end}
            for segment in transcript.segments
            for word in segment.words
        ]
    if wire.wants_segments:
        document["segments"] = [
            _segment(*each, with_words=wire.wants_words) for each in enumerate(transcript.segments)
        ]
    return {**document, "usage": usage}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the usage of a transcript as a duration, like OpenAI does for Whisper."""
    return {"type": "duration", "seconds": usage.heard}


class TranscriptEvents:
    """Formats a transcript as OpenAI's `transcript.text.delta` and `transcript.text.done`.

    Args:
        wire: Form of the request; `verbose_json` adds progress and ends with the whole document.
    """

    content_type = SERVER_SENT_EVENTS
    has_news = False

    def __init__(self, wire: TranscriptionRequest, task: Task) -> None:
        self.finished = False
        self._wire, self._task = wire, task
        self._text: list[str] = []
        self._events: list[Recording | Segment] = []

    def opening(self) -> bytes:
        """Return no bytes."""
        return b""

    def heartbeat(self) -> bytes:
        """Return a delta without text, since some clients fail on comments."""
        return data_event({"type": "transcript.text.delta", "delta": ""})

    def event(self, event: InferenceEvent) -> bytes:
        """Return the server-sent event for an inference event."""
        if isinstance(event, Recording | Segment):
            self._events.append(event)
        match event:
            case PromptProgress(processed, total) if self._wire.response_format == "verbose_json":
                told = {"processed": processed, "total": total}
                return data_event({"type": "transcript.text.delta", "delta": "", "prompt_progress": told})
            case Segment(text):
                # The final text has no leading space, and the deltas must add up to it.
                delta = text if self._text else text.lstrip()
                self._text.append(delta)
                return data_event({"type": "transcript.text.delta", "delta": delta})
            case Finished(usage=usage):
                self.finished = True
                transcript = collected_transcript(self._task, self._events, usage)
                return data_event({"type": "transcript.text.done", **json_document(transcript, self._wire)})
            case Failed(problem):
                return self.failure(problem)
        return b""

    def failure(self, problem: Problem) -> bytes:
        self.finished = True
        return error_event(problem)


def _segment(number: int, segment: Segment, *, with_words: bool) -> dict[str, Any]:
    """Return a segment, with its words as Whisper's own output has them, which OpenAI's API leaves out."""
    words = [
        {"word": word.text, "start": word.start, "end": word.end, "probability": word.probability}
        for word in segment.words
    ]
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
        **({"words": words} if with_words else {}),
    }
