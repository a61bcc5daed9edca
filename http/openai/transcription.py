"""Routes `POST /v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from quart import Blueprint, Response

from greenroom.http.answering.answer_request import stream_request
from greenroom.http.answering.collecting import collect_results
from greenroom.http.answering.current_request import request_client, request_id
from greenroom.http.answering.event_stream import ThreadedEventStream
from greenroom.http.answering.http_responses import large_json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, FORM, JSON, TEXT, described
from greenroom.http.answering.request_parameters import parse_model_key
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import SERVER_SENT_EVENTS, data_event
from greenroom.http.encoding.problem_documents import error_event
from greenroom.http.guard.multipart_forms import Form
from greenroom.http.media.transcripts import Task, Transcript, collected_transcript, language_name, plain_text
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress
from greenroom.schemas.events.result_events import Recording, Segment
from greenroom.schemas.messages.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.problems import Problem, invalid, missing
from greenroom.schemas.wire.openai_endpoints import TranscriptionRequest


def transcription_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("transcription", __name__)

    @routes.post("/v1/audio/transcriptions")
    @described(
        "Transcribe a recording",
        body=TranscriptionRequest,
        body_media=FORM,
        media=(JSON, TEXT, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def transcriptions() -> Response:
        return await _answer(services, "transcribe")

    @routes.post("/v1/audio/translations")
    @described(
        "Translate a recording into English",
        body=TranscriptionRequest,
        body_media=FORM,
        media=(JSON, TEXT, EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def translations() -> Response:
        return await _answer(services, "translate")

    return routes


async def _answer(services: RouteServices, task: Task) -> Response:
    form = await services.read_form()
    wire = parse_transcription_form(form)
    assert form.file is not None
    asked = transcription_request(wire, str(form.file.path), task, request_id(), request_client())
    if wire.stream:
        return await stream_request(services, asked, TranscriptEvents(wire, task), body=ThreadedEventStream)
    results = await collect_results(services.refs.pool, asked, Recording, Segment)
    transcript = collected_transcript(task, results.events, results.finished.usage)
    if wire.response_format in ("text", "srt", "vtt"):
        text = plain_text(transcript, wire.response_format)
        return Response(text, content_type="text/plain; charset=utf-8")
    shown = sum(len(segment.tokens) + len(segment.words) for segment in transcript.segments)
    return await large_json_response(lambda: json_document(transcript, wire), shown)


FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
GRANULARITIES = ("word", "segment")
_MAX_LANGUAGE = 40
_UNSUPPORTED = {
    "include": "log-probabilities of a transcript's tokens are not given",
    "known_speaker_names": "speakers are not told apart",
    "known_speaker_references": "speakers are not told apart",
    "languages": "name one `language`, or none to have it detected",
    "keywords": "put words that are to be recognized into `prompt`",
}
"""Official fields that are refused -> reason."""


def parse_transcription_form(form: Form) -> TranscriptionRequest:
    """Return the fields of a form; unknown ones are ignored. Raises ProblemError: 400 that names the
    offending field.
    """
    fields = _by_name(form.fields)
    if form.file is None:
        raise missing("file")
    if not form.file.size:
        raise invalid("`file` is empty.", "file")
    for name, why in _UNSUPPORTED.items():
        if any(fields.get(name, ())):
            raise invalid(f"`{name}` is not supported: {why}.", name)
    _check_chunking(fields)
    return _checked(
        TranscriptionRequest(
            _one(fields, "model") or _missing_model(),
            _one(fields, "language") or None,
            _one(fields, "prompt") or "",
            _choice(_one(fields, "response_format") or "json", "response_format", FORMATS),
            _temperature(_one(fields, "temperature")),
            tuple(
                _choice(value, "timestamp_granularities[]", GRANULARITIES)
                for value in fields.get("timestamp_granularities", ())
            ),
            _boolean(_one(fields, "stream"), "stream"),
        )
    )


def transcription_request(
    wire: TranscriptionRequest, file: str, task: Task, request_id: str, client: str
) -> InferenceRequest:
    """Return the protocol-independent request. Raises ProblemError (400): the model's name is invalid."""
    asked = TranscriptionInput(
        file,
        task,
        wire.language,
        wire.prompt,
        wire.wants_words,
        # OpenAI documents 0 as automatic: the temperature rises where a window fails.
        wire.temperature or None,
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), asked, client=client)


def _checked(wire: TranscriptionRequest) -> TranscriptionRequest:
    if wire.timestamp_granularities and wire.response_format != "verbose_json":
        detail = "`timestamp_granularities[]` needs `response_format` to be 'verbose_json'."
        raise invalid(detail, "timestamp_granularities[]")
    if wire.stream and wire.response_format in ("srt", "vtt"):
        detail = "With `stream`, `response_format` must be 'json', 'text' or 'verbose_json'."
        raise invalid(detail, "response_format")
    if wire.language is not None and len(wire.language) > _MAX_LANGUAGE:
        raise invalid("`language` must be a code of ISO 639-1, such as 'en'.", "language")
    return wire


def _by_name(fields: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group values by field name; clients write repeated fields with or without brackets."""
    found: dict[str, list[str]] = {}
    for name, value in fields:
        found.setdefault(name.removesuffix("[]"), []).append(value)
    return found


def _one(fields: dict[str, list[str]], name: str) -> str | None:
    values = fields.get(name, [])
    if len(values) > 1:
        raise invalid(f"`{name}` is sent {len(values)} times: send it once.", name)
    return values[0] if values else None


def _missing_model() -> str:
    raise missing("model")


def _choice(value: str, field: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, choices))}.", field)
    return value


def _boolean(value: str | None, field: str) -> bool:
    if value is None:
        return False
    known = {"true": True, "1": True, "false": False, "0": False, "": False}
    if value.lower() not in known:
        raise invalid(f"`{field}` must be 'true' or 'false'.", field)
    return known[value.lower()]


def _temperature(value: str | None) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise invalid("`temperature` must be a number from 0 to 1.", "temperature")
    return number


def _check_chunking(fields: dict[str, list[str]]) -> None:
    """Accept `chunking_strategy` only if it asks for cuts in silence, which always happens anyway. Raises
    ProblemError: 400 for anything else.
    """
    wanted = _one(fields, "chunking_strategy")
    kind = _one(fields, "chunking_strategy[type]")
    if wanted not in (None, "", "auto"):
        try:
            document = json.loads(str(wanted)[:4096])
        except (ValueError, RecursionError):  # deeply nested brackets
            document = None
        kind = document.get("type") if isinstance(document, dict) else "?"
    if kind not in (None, "server_vad"):
        detail = "`chunking_strategy` must be 'auto', or an object whose `type` is 'server_vad'."
        raise invalid(detail, "chunking_strategy")


def json_document(transcript: Transcript, wire: TranscriptionRequest) -> dict[str, Any]:
    usage = {"type": "duration", "seconds": transcript.usage.heard}
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


class TranscriptEvents:
    """Formats a transcript as OpenAI's `transcript.text.delta` and `transcript.text.done`. `wire`: form of
    the request; `verbose_json` adds progress and ends with the whole document.
    """

    content_type = SERVER_SENT_EVENTS
    has_news = False

    def __init__(self, wire: TranscriptionRequest, task: Task) -> None:
        self.finished = False
        self._wire, self._task = wire, task
        self._has_text = False
        self._events: list[Recording | Segment] = []

    def opening(self) -> bytes:
        return b""

    def heartbeat(self) -> bytes:
        """Return a delta without text, since some clients fail on comments."""
        return data_event({"type": "transcript.text.delta", "delta": ""})

    def event(self, event: InferenceEvent) -> bytes:
        if isinstance(event, Recording | Segment):
            self._events.append(event)
        match event:
            case PromptProgress(processed, total) if self._wire.response_format == "verbose_json":
                told = {"processed": processed, "total": total}
                return data_event({"type": "transcript.text.delta", "delta": "", "prompt_progress": told})
            case Segment(text):
                # The final text has no leading space, and the deltas must add up to it.
                delta = text if self._has_text else text.lstrip()
                self._has_text = self._has_text or bool(delta)
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
