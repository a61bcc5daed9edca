"""Formatting of speech as an audio body, or as events with audio in base64."""

from __future__ import annotations

import base64

from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS, data_event
from greenroom.http.errors.answer_cut import AnswerCutError
from greenroom.http.errors.openai_errors import error_event
from greenroom.http.media.audio.audio_encoder import AudioEncoder
from greenroom.http.media.audio.audio_formats import AudioFormat
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress, Usage
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem

log = get_logger(actor="http")


class AudioBody:
    """Formats speech as the bytes of an audio file, which cannot express errors.

    Args:
        wanted: Audio format of the response.
    """

    has_news = False

    def __init__(self, wanted: AudioFormat) -> None:
        self._encoder = AudioEncoder(wanted)
        self.content_type = wanted.content_type
        self.finished = False

    def opening(self) -> bytes:
        """Return no bytes: the file header depends on the first samples."""
        return b""

    def heartbeat(self) -> bytes:
        """Return no bytes: an audio file has no keep-alive messages."""
        return b""

    def event(self, event: InferenceEvent) -> bytes:
        """Return the next bytes of the file.

        Raises:
            AnswerCutError: The speech failed.
        """
        match event:
            case AudioChunk(samples, rate):
                return self._encoder.encode(samples, rate)
            case Finished():
                self.finished = True
                return self._encoder.finish()
            case Failed(problem):
                return self.failure(problem)
        return b""

    def failure(self, problem: Problem) -> bytes:
        """Abort the response.

        Raises:
            AnswerCutError: Always.
        """
        log.warning("answer cut", code=problem.code, detail=problem.detail)
        raise AnswerCutError(problem.detail)


class SpeechEvents:
    """Formats speech as OpenAI's `speech.audio.delta` and `speech.audio.done`.

    Args:
        wanted: Format of the audio that all deltas form together.
    """

    content_type = SERVER_SENT_EVENTS
    has_news = False

    def __init__(self, wanted: AudioFormat) -> None:
        self._encoder = AudioEncoder(wanted)
        self.finished = False

    def opening(self) -> bytes:
        """Return no bytes: the first event carries the first audio."""
        return b""

    def heartbeat(self) -> bytes:
        """Return a delta without audio, since some clients fail on comments."""
        return data_event({"type": "speech.audio.delta", "audio": ""})

    def event(self, event: InferenceEvent) -> bytes:
        """Return the server-sent events for an inference event."""
        match event:
            case AudioChunk(samples, rate):
                return _delta(self._encoder.encode(samples, rate))
            case PromptProgress(processed, total):
                told = {"processed": processed, "total": total}
                return data_event({"type": "speech.audio.delta", "audio": "", "prompt_progress": told})
            case Finished(usage=usage):
                self.finished = True
                return _delta(self._encoder.finish()) + _done(usage)
            case Failed(problem):
                return self.failure(problem)
        return b""

    def failure(self, problem: Problem) -> bytes:
        """Return an error event, which ends the stream."""
        self.finished = True
        return error_event(problem)


def _delta(audio: bytes) -> bytes:
    if not audio:
        return b""
    return data_event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode("ascii")})


def _done(usage: Usage) -> bytes:
    counts = {
        "input_tokens": usage.prompt,
        "output_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "seconds": round(usage.spoken, 3),
    }
    return data_event({"type": "speech.audio.done", "usage": counts})
