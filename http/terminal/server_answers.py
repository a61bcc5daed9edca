"""Answers of a server to requests for vectors, scores, speech and transcripts, as the engine's events."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import trio

from greenroom.http.media.audio.language_names import language_code
from greenroom.http.terminal.answer_sources import open_client, server_events
from greenroom.http.terminal.answers import Ask
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, Usage
from greenroom.schemas.events.result_events import AudioChunk, Recording, Score, Segment, Vector, Word
from greenroom.schemas.messages.requests import (
    EmbeddingInput,
    RequestInput,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)
from greenroom.schemas.problems import Problem

_RATE_AT, _HEADER_BYTES = 24, 44
"""Place of the sample rate in the header of a WAV file, and the header's length."""


@asynccontextmanager
async def open_answers(server: ChosenServer) -> AsyncIterator[Ask]:
    """Open a server as the place where a command's requests run."""
    async with open_client(server) as client:

        @asynccontextmanager
        async def ask(asked: RequestInput) -> AsyncIterator[AsyncIterable[InferenceEvent]]:
            async with aclosing(_events(_Connection(client, server), asked)) as events:
                yield events

        yield ask


def _events(connection: _Connection, asked: RequestInput) -> AsyncGenerator[InferenceEvent]:
    match asked:
        case EmbeddingInput():
            return _embed(connection, asked)
        case ScoreInput():
            return _rank(connection, asked)
        case SpeechInput():
            return _speak(connection, asked)
        case TranscriptionInput():
            return _transcribe(connection, asked)
    raise TypeError(asked)


@attrs.frozen
class _Connection:
    client: httpx2.AsyncClient
    server: ChosenServer

    def request(self, path: str, **content: Any) -> httpx2.Request:
        return self.client.build_request("POST", f"{self.server.base}{path}", **content)

    async def read(
        self, request: httpx2.Request, events_of: Callable[[Any], Iterator[InferenceEvent]]
    ) -> list[InferenceEvent]:
        """Return the events of an answer that is one JSON document."""
        try:
            answer = await self.client.send(request)
            if answer.status_code != 200:
                return [Failed(self.server.refusal(answer.status_code, answer.content))]
            return [*events_of(answer.json()), Finished("stop", Usage(0, 0))]
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return [Failed(self.server.gone(error))]
        except (ValueError, KeyError, TypeError, AttributeError):
            return [Failed(_unreadable(self.server))]


async def _embed(connection: _Connection, asked: EmbeddingInput) -> AsyncGenerator[InferenceEvent]:
    body = {
        "model": connection.server.model,
        "input": list(asked.texts),
        "encoding_format": "base64",
        **({"truncate": True} if asked.truncate else {}),
        **_given(dimensions=asked.dimensions, input_type=asked.input_type, instruction=asked.instruction),
    }
    for event in await connection.read(connection.request("/v1/embeddings", json=body), _vectors):
        yield event


def _vectors(document: Mapping[str, Any]) -> Iterator[InferenceEvent]:
    for entry in document["data"]:
        yield Vector(base64.b64decode(entry["embedding"]), int(entry["index"]))


async def _rank(connection: _Connection, asked: ScoreInput) -> AsyncGenerator[InferenceEvent]:
    body = {
        "model": connection.server.model,
        "query": asked.pairs[0][0],
        "documents": [document for _, document in asked.pairs],
        **_given(instruction=asked.instruction),
    }
    for event in await connection.read(connection.request("/v1/rerank", json=body), _scores):
        yield event


def _scores(document: Mapping[str, Any]) -> Iterator[InferenceEvent]:
    for entry in document["results"]:
        yield Score(float(entry["relevance_score"]), int(entry["index"]))


async def _transcribe(connection: _Connection, asked: TranscriptionInput) -> AsyncGenerator[InferenceEvent]:
    granularities = ["segment", "word"] if asked.word_timestamps else ["segment"]
    transcribes = asked.task == "transcribe"
    fields = {
        "model": connection.server.model,
        "response_format": "verbose_json",
        "prompt": asked.prompt,
        **({"timestamp_granularities[]": granularities} if transcribes else {}),
        **_given(language=asked.language, temperature=asked.temperature),
    }
    path = "/v1/audio/transcriptions" if transcribes else "/v1/audio/translations"
    recording = Path(asked.file)
    try:
        file = await trio.to_thread.run_sync(recording.open, "rb")
    except OSError as error:
        yield Failed(Problem(400, "unreadable", f"{recording}: {error.strerror or error}"))
        return
    with file:
        request = connection.request(path, data=fields, files={"file": (recording.name, file)})
        events = await connection.read(request, _transcript)
    for event in events:
        yield event


def _transcript(document: Mapping[str, Any]) -> Iterator[InferenceEvent]:
    yield Recording(document["duration"], language_code(document["language"]))
    for segment in document.get("segments", ()):
        words = tuple(
            Word(word["word"], word["start"], word["end"], word["probability"])
            for word in segment.get("words", ())
        )
        numbers = {name: segment[name] for name in _SEGMENT_NUMBERS}
        yield Segment(segment["text"], tokens=tuple(segment["tokens"]), words=words, **numbers)


_SEGMENT_NUMBERS = (
    "start",
    "end",
    "avg_logprob",
    "compression_ratio",
    "no_speech_prob",
    "temperature",
    "seek",
)


async def _speak(connection: _Connection, asked: SpeechInput) -> AsyncGenerator[InferenceEvent]:
    server = connection.server
    try:
        reference = None if asked.reference is None else await trio.Path(asked.reference).read_bytes()
    except OSError as error:
        yield Failed(Problem(400, "unreadable", f"{asked.reference}: {error.strerror or error}"))
        return
    body = {
        "model": server.model,
        "input": asked.text,
        # Samples as they are, which this process encodes as it encodes those of its own models.
        "response_format": "wav",
        "stream_format": "sse",
        "speed": asked.speed,
        **({"instructions": asked.instructions} if asked.instructions else {}),
        **_given(voice=asked.voice, language=asked.language, ref_text=asked.reference_text),
        **({} if reference is None else {"ref_audio": base64.b64encode(reference).decode()}),
    }
    try:
        request = connection.request("/v1/audio/speech", json=body)
        response = await connection.client.send(request, stream=True)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        yield Failed(server.gone(error))
        return
    try:
        async with aclosing(_spoken(response, server)) as events:
            async for event in events:
                yield event
    finally:
        await response.aclose()


async def _spoken(response: httpx2.Response, server: ChosenServer) -> AsyncGenerator[InferenceEvent]:
    header, rate, ended = b"", 0, False
    async for document in server_events(response, server):
        if isinstance(document, Failed):
            yield document
            return
        ended = ended or document.get("type") == "speech.audio.done"
        try:
            samples = base64.b64decode(document.get("audio", ""), validate=True)
        except (ValueError, TypeError):
            break
        if not rate:
            header += samples
            if len(header) < _HEADER_BYTES:
                continue
            (rate,) = struct.unpack_from("<I", header, _RATE_AT)
            samples = header[_HEADER_BYTES:]
        if samples:
            yield AudioChunk(samples, rate)
    yield Finished("stop", Usage(0, 0)) if ended else Failed(_unreadable(server))


def _unreadable(server: ChosenServer) -> Problem:
    return Problem(
        502, "unreadable", f"{server.url} gives an answer that is not as OpenAI's servers write it"
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
