"""Routes of speech synthesis: `POST /v1/audio/speech`, and lists of voices and models."""

from __future__ import annotations

import base64
import binascii
import math
import re
from functools import partial
from typing import Any

import attrs
from quart import Blueprint, Response, request

from greenroom.actors.core.ref import Ref
from greenroom.http.answering.answer_request import stream_request
from greenroom.http.answering.current_request import describe_models, request_client, request_id
from greenroom.http.answering.event_stream import ThreadedEventStream
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import ANSWERED_BY_A_MODEL, EVENTS, described
from greenroom.http.answering.request_parameters import parse_model_key
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import SERVER_SENT_EVENTS, data_event
from greenroom.http.encoding.problem_documents import AnswerCutError, error_event
from greenroom.http.media.audio_encoder import AUDIO_FORMATS, AudioEncoder, AudioFormat
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress, Usage
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest, SpeechInput
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem, invalid
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.wire.openai_chat import OPENAI
from greenroom.schemas.wire.openai_endpoints import SpeechRequest


@attrs.frozen
class VoiceQuery:
    """The query of a list of voices. `model`: model whose voices to list; all without it."""

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


MAX_REFERENCE_BYTES = 10 * MEGABYTE
"""Size limit of decoded reference audio, in bytes; a minute of stereo WAV at 48 kHz has 11.5 MB."""

STREAM_FORMATS = ("audio", "sse")

_DATA_URL = re.compile(r"data:[\w.+/;=-]{0,100};base64,")


def parse_speech_request(wire: SpeechRequest, request_id: str, client: str) -> InferenceRequest:
    """Parse a speech request into a protocol-independent one, without its reference audio. Raises
    ProblemError: 400 that names the offending field.
    """
    if wire.language is not None and wire.lang_code is not None and wire.language != wire.lang_code:
        raise invalid("`language` and `lang_code` name different languages: send one of them.", "lang_code")
    speed = 1.0 if wire.speed is None else wire.speed
    if not math.isfinite(speed):
        raise invalid("`speed` must be a number.", "speed")
    speech = SpeechInput(
        wire.input,
        voice=None if wire.voice is None else wire.voice.name,
        speed=speed,
        instructions=wire.instructions or "",
        language=wire.language if wire.language is not None else wire.lang_code,
        reference_text=wire.ref_text,
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), speech, client=client)


def decode_reference(wire: SpeechRequest) -> bytes | None:
    """Return the reference audio for voice cloning, as the bytes of an audio file. Raises ProblemError: 400:
    it is not base64, or too large.
    """
    if wire.ref_audio is None:
        return None
    start = _DATA_URL.match(wire.ref_audio[:200])
    encoded = wire.ref_audio[start.end() :] if start is not None else wire.ref_audio
    if len(encoded) > MAX_REFERENCE_BYTES * 4 // 3 + 4:
        raise invalid(f"`ref_audio` has more than {MAX_REFERENCE_BYTES >> 20} MB.", "ref_audio")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("`ref_audio` must be audio in base64, or a `data:` URL of it.", "ref_audio") from None


def with_reference(asked: InferenceRequest, path: str) -> InferenceRequest:
    """Return the request with a reference recording whose voice to clone."""
    assert isinstance(asked.input, SpeechInput)
    return attrs.evolve(asked, input=attrs.evolve(asked.input, reference=path))


def parse_audio_format(wire: SpeechRequest) -> AudioFormat:
    """Return the audio format of the response. Raises ProblemError (400): for an unknown format."""
    return AUDIO_FORMATS[_choice(wire.response_format, "response_format", tuple(AUDIO_FORMATS))]


def wants_events(wire: SpeechRequest) -> bool:
    """Return whether the speech is sent as server-sent events. Raises ProblemError: 400 for an unknown stream
    format.
    """
    return _choice(wire.stream_format, "stream_format", STREAM_FORMATS) == "sse"


def _choice(value: str | None, field: str, choices: tuple[str, ...]) -> str:
    if value is None:
        return choices[0]
    if value not in choices:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, choices))}.", field)
    return value


log = get_logger(actor="http")


class AudioBody:
    """Formats speech as the bytes of an audio file, which cannot express errors."""

    has_news = False

    def __init__(self, wanted: AudioFormat) -> None:
        self._encoder = AudioEncoder(wanted)
        self.content_type = wanted.content_type
        self.finished = False

    def opening(self) -> bytes:
        """Return no bytes: the file header depends on the first samples."""
        return b""

    def heartbeat(self) -> bytes:
        return b""

    def event(self, event: InferenceEvent) -> bytes:
        """Return the next bytes of the file. Raises AnswerCutError: the speech failed."""
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
        """Abort the response. Raises AnswerCutError: always."""
        log.warning("answer cut", code=problem.code, detail=problem.detail)
        raise AnswerCutError(problem.detail)


class SpeechEvents:
    """Formats speech as OpenAI's `speech.audio.delta` and `speech.audio.done`."""

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
