"""Vectors, scores, speech and transcripts, asked of a remote in the words of OpenAI and Cohere."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.openai_wire import usage_of
from greenroom.schemas.events.events import Finished, InferenceEvent, Usage
from greenroom.schemas.events.result_events import AudioChunk, Recording, Score, Segment, Vector, Word
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import (
    EmbeddingInput,
    InferenceRequest,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)

MAX_DIMENSIONS = 65_536
_HEADER = 4_096


def embedding_call(asked: EmbeddingInput, model: str, api: str) -> wire.Call:
    """Return the call that embeds texts."""
    own = {
        "input_type": asked.input_type,
        "instruction": asked.instruction,
        "truncate": asked.truncate or None,
    }
    if api != "greenroom" and any(own.values()):
        raise wire.unsupported("`input_type`, `instruction` or `truncate`", api)
    texts = [text if isinstance(text, str) else list(text) for text in asked.texts]
    encoding = "base64" if api == "greenroom" else "float"
    body = {
        "model": model,
        "input": texts,
        "encoding_format": encoding,
        "dimensions": asked.dimensions,
        **own,
    }
    given = {name: value for name, value in body.items() if value is not None}
    return wire.Call("/embeddings", given, VectorReader(len(texts)))


def score_call(asked: ScoreInput, model: str) -> wire.Call:
    """Return the call that scores documents: one query's as a ranking, others as pairs."""
    queries = {query for query, _ in asked.pairs}
    documents = [document for _, document in asked.pairs]
    own = {"instruction": asked.instruction} if asked.instruction else {}
    if len(queries) == 1:
        body: dict[str, Any] = {"model": model, "query": next(iter(queries)), "documents": documents, **own}
        if asked.document_tokens is not None:
            body["max_tokens_per_doc"] = asked.document_tokens
        if not asked.truncate:
            body["truncation"] = False
        return wire.Call("/rerank", body, ScoreReader(len(documents)))
    firsts = [query for query, _ in asked.pairs]
    body = {"model": model, "text_1": firsts, "text_2": documents, **own}
    return wire.Call("/score", body, ScoreReader(len(documents)))


def speech_call(asked: SpeechInput, model: str, api: str) -> wire.Call:
    """Return the call that speaks a text."""
    own: dict[str, Any] = {"language": asked.language, "ref_text": asked.reference_text}
    if asked.reference is not None:
        own["ref_audio"] = base64.b64encode(Path(asked.reference).read_bytes()).decode()
    if api != "greenroom" and any(own.values()):
        raise wire.unsupported("A language, or a voice to imitate,", api)
    voice = asked.voice or (None if api == "greenroom" else "alloy")
    body = {"model": model, "input": asked.text, "voice": voice, "response_format": "wav", **own}
    if asked.speed != 1.0:
        body["speed"] = asked.speed
    if asked.instructions:
        body["instructions"] = asked.instructions
    given = {name: value for name, value in body.items() if value is not None}
    return wire.Call("/audio/speech", given, SpeechReader(), is_binary=True)


def transcription_call(request: InferenceRequest, asked: TranscriptionInput, model: str) -> wire.Call:
    """Return the call that transcribes a recording."""
    fields: dict[str, Any] = {"model": model, "response_format": "verbose_json"}
    given = {"language": asked.language, "prompt": asked.prompt or None, "temperature": asked.temperature}
    fields |= {
        name: str(value)
        for name, value in {**given, **wire.parameters_of(request)}.items()
        if value is not None
    }
    if asked.word_timestamps:
        fields["timestamp_granularities[]"] = ["word", "segment"]
    path = "/audio/translations" if asked.task == "translate" else "/audio/transcriptions"
    return wire.Call(path, fields, TranscriptReader(), file=asked.file)


class VectorReader(wire.Reader):
    """Reads a list of embeddings.

    Args:
        texts: Number of texts.
    """

    def __init__(self, texts: int) -> None:
        self._texts = texts

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        wire.raise_reported(data)
        found = wire.items_of(data.get("data"))
        places = [wire.index_of(each.get("index", at), self._texts) for at, each in enumerate(found)]
        if sorted(places) != list(range(self._texts)):
            raise wire.BrokenAnswer("a list that has not one vector for each text")
        for place, each in zip(places, found, strict=True):
            yield Vector(_numbers(each.get("embedding")), place)
        self.finished = True
        yield Finished("stop", usage_of(wire.members_of(data.get("usage"))))


def _numbers(value: Any) -> bytes:
    wrong = wire.BrokenAnswer("a vector that is none of numbers")
    try:
        if isinstance(value, str):
            packed = base64.b64decode(value, validate=True)
            found: Any = struct.unpack(f"<{len(packed) // 4}f", packed)
        elif isinstance(value, list):
            found, packed = value, struct.pack(f"<{len(value)}f", *value)
        else:
            raise wrong
        if not 0 < len(found) <= MAX_DIMENSIONS or not all(map(math.isfinite, found)):
            raise wrong
    except (ValueError, struct.error, OverflowError):
        raise wrong from None
    return packed


class ScoreReader(wire.Reader):
    """Reads scores, of a ranking or of pairs.

    Args:
        documents: Number of documents.
    """

    def __init__(self, documents: int) -> None:
        self._documents = documents

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        wire.raise_reported(data)
        found = wire.items_of(data.get("results") or data.get("data"))
        places = [wire.index_of(each.get("index"), self._documents) for each in found]
        if sorted(places) != list(range(self._documents)):
            raise wire.BrokenAnswer("a list that has not one score for each document")
        for place, each in zip(places, found, strict=True):
            value = wire.number_of(each.get("relevance_score", each.get("score")))
            if value is None:
                raise wire.BrokenAnswer("a score that is no number")
            yield Score(value, place)
        self.finished = True
        tokens = wire.members_of(wire.members_of(data.get("meta")).get("tokens")).get("input_tokens")
        usage = usage_of(wire.members_of(data.get("usage")))
        yield Finished("stop", usage if usage.prompt else Usage(prompt=wire.count_of(tokens)))


class SpeechReader(wire.Reader):
    """Reads speech as a WAV file of one channel with 16 bits, piece by piece."""

    def __init__(self) -> None:
        self._header, self._rest = b"", b""
        self._rate = self._size = 0

    def piece(self, data: bytes) -> Iterator[InferenceEvent]:
        if not self._rate:
            self._header += data
            if (data := self._begun()) == b"" and not self._rate:
                return
        samples = self._rest + data
        whole = len(samples) - len(samples) % 2
        self._rest = samples[whole:]
        if whole:
            self._size += whole
            yield AudioChunk(samples[:whole], self._rate)

    def end(self) -> Iterator[InferenceEvent]:
        if not self._size:
            raise wire.BrokenAnswer("speech without a sound")
        self.finished = True
        yield Finished("stop", Usage(spoken=self._size / 2 / self._rate))

    def _begun(self) -> bytes:
        """Return the samples behind a complete header, and take its rate."""
        at = self._header.find(b"data", 12)
        if at < 0 or len(self._header) < at + 8:
            if len(self._header) > _HEADER or not b"RIFF".startswith(self._header[:4]):
                raise wire.BrokenAnswer("sound that is no WAV file")
            return b""
        form = self._header.find(b"fmt ", 12, at)
        if form < 0 or form + 24 > at or not self._header.startswith(b"RIFF"):
            raise wire.BrokenAnswer("sound that is no WAV file")
        kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", self._header, form + 8)
        if (channels, bits) != (1, 16) or not 4_000 <= rate <= 192_000 or kind not in (1, 0xFFFE):
            raise wire.BrokenAnswer("sound that is not of one channel with 16 bits")
        self._rate = rate
        return self._header[at + 8 :]


class TranscriptReader(wire.Reader):
    """Reads a transcript with its segments."""

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        wire.raise_reported(data)
        if "text" not in data:
            raise wire.BrokenAnswer("a transcript without a text")
        text, duration = wire.text_of(data.get("text")), _seconds(data.get("duration"))
        yield Recording(duration, wire.text_of(data.get("language")) or None)
        segments = wire.items_of(data.get("segments"))
        loose = [_word(each) for each in wire.items_of(data.get("words"))]
        for each in segments:
            start, end = _seconds(each.get("start")), _seconds(each.get("end"))
            own = wire.items_of(each.get("words"))
            words = [_word(word) for word in own] or [word for word in loose if start <= word.start < end]
            yield Segment(wire.text_of(each.get("text")), start, end, words=tuple(words))
        if text and not segments:
            yield Segment(text, 0.0, duration, words=tuple(loose))
        self.finished = True
        yield Finished("stop", Usage(heard=duration))


def _word(word: JsonObject) -> Word:
    text = wire.text_of(word.get("word"))
    spaced = text if text.startswith(" ") else f" {text}"
    probability = word.get("probability")
    known = probability if isinstance(probability, float) and 0 <= probability <= 1 else 1.0
    return Word(spaced, _seconds(word.get("start")), _seconds(word.get("end")), known)


def _seconds(value: Any) -> float:
    return max(0.0, wire.number_of(value) or 0.0)
