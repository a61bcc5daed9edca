"""Routes of speech synthesis: `POST /v1/audio/speech`, and lists of voices and models."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.answer_request import stream_request
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols.route_description import ANSWERED_BY_A_MODEL, EVENTS, described
from greenroom.http.answering.requests.allowed_models import describe_models
from greenroom.http.answering.requests.current_request import request_client, request_id
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.event_stream import ThreadedEventStream
from greenroom.http.media.audio.audio_formats import AudioFormat
from greenroom.http.openai.speech.speech_request import (
    decode_reference,
    parse_audio_format,
    parse_speech_request,
    wants_events,
    with_reference,
)
from greenroom.http.openai.speech.speech_stream import AudioBody, SpeechEvents
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.openai.speech import SpeechRequest
from greenroom.schemas.protocols.pool_protocol import PoolMessage


@attrs.frozen
class VoiceQuery:
    """The query of a list of voices.

    Args:
        model: Model whose voices to list; all without it.
    """

    model: str | None = None


def speech_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that speak text and list voices."""
    routes = Blueprint("speech", __name__)
    pool = services.refs.pool

    @routes.post("/v1/audio/speech")
    @described(
        "Speak a text",
        body=SpeechRequest,
        converter=OPENAI,
        media=("audio/*", EVENTS),
        problems=ANSWERED_BY_A_MODEL,
    )
    async def speech() -> Response:
        parse = partial(_parse, request_id=request_id(), client=request_client())
        _, (asked, reference, wanted, events) = await services.read_request(SpeechRequest, OPENAI, {}, parse)
        if reference is not None:
            asked = with_reference(asked, str(await services.spool(reference)))
        formatter = SpeechEvents(wanted) if events else AudioBody(wanted)
        # A plain audio body cannot report errors after its status, so it waits for audio without limit.
        timeout = services.status_timeout if events else math.inf
        return await stream_request(
            services, asked, formatter, status_timeout=timeout, body=ThreadedEventStream
        )

    @routes.get("/v1/audio/voices")
    @described("List voices, of one model or of all", query=VoiceQuery, problems=(404,))
    async def voices() -> Response:
        models = await _speaking(pool, request.args.get("model"))
        names = sorted({voice for model in models for voice in _voices(model)})
        listed = [{"id": name, "name": name} for name in names]
        return json_response({"object": "list", "voices": listed, "data": listed})

    @routes.get("/v1/audio/models")
    @described("List the models that speak")
    async def models() -> Response:
        found = await _speaking(pool, None)
        listed = [{"id": model.id, "object": "model", "voices": _voices(model)} for model in found]
        return json_response({"object": "list", "data": listed, "models": listed})

    # Some clients use a base URL without /v1.
    routes.add_url_rule("/audio/voices", view_func=voices, endpoint="bare_voices")
    routes.add_url_rule("/audio/models", view_func=models, endpoint="bare_models")
    return routes


def _parse(
    wire: SpeechRequest, _: JsonObject, request_id: str, client: str
) -> tuple[InferenceRequest, bytes | None, AudioFormat, bool]:
    wanted, events = parse_audio_format(wire), wants_events(wire)
    return parse_speech_request(wire, request_id, client), decode_reference(wire), wanted, events


async def _speaking(pool: Ref[PoolMessage], name: str | None) -> list[ModelDescription]:
    """Return the speech models; if a model is named, only that one, and none if it is of another type."""
    found = await describe_models(pool, name)
    return [model for model in found if model.record and model.record.model_type == "speech"]


def _voices(model: ModelDescription) -> list[Any]:
    return [] if model.record is None else list(model.record.voices)
