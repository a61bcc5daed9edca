"""Routes `POST /v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

from quart import Blueprint, Response

from greenroom.http.answering.answer_request import stream_request
from greenroom.http.answering.collecting.collected_results import collect_results
from greenroom.http.answering.http_responses import large_json_response
from greenroom.http.answering.protocols.route_description import (
    ANSWERED_BY_A_MODEL,
    EVENTS,
    FORM,
    JSON,
    TEXT,
    described,
)
from greenroom.http.answering.requests.current_request import request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.event_stream import ThreadedEventStream
from greenroom.http.media.audio.transcript import Task, collected_transcript, plain_text
from greenroom.http.openai.transcription.transcription_formatter import (
    TranscriptEvents,
    content_type,
    json_document,
)
from greenroom.http.openai.transcription.transcription_request import (
    parse_transcription_form,
    transcription_request,
)
from greenroom.schemas.events.result_events import Recording, Segment
from greenroom.schemas.openai.transcriptions import TranscriptionRequest
from greenroom.schemas.problems import missing


def transcription_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that transcribe and translate recordings."""
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
    if form.file is None:
        raise missing("file")
    asked = transcription_request(wire, str(form.file.path), task, request_id(), request_client())
    if wire.stream:
        return await stream_request(services, asked, TranscriptEvents(wire, task), body=ThreadedEventStream)
    results = await collect_results(services.refs.pool, asked, Recording, Segment)
    transcript = collected_transcript(task, results.events, results.finished.usage)
    text_type = content_type(wire.response_format)
    if text_type is not None:
        return Response(plain_text(transcript, wire.response_format), content_type=text_type)
    shown = sum(len(segment.tokens) + len(segment.words) for segment in transcript.segments)
    return await large_json_response(lambda: json_document(transcript, wire), shown)
