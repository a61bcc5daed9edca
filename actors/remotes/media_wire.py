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
from greenroom.schemas.messages import requests as asks
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.settings.remotes import Remote

MAX_DIMENSIONS = 65_536
_HEADER = 4_096


def embedding_call(_: InferenceRequest, asked: asks.EmbeddingInput, model: str, remote: Remote) -> wire.Call:
    is_own = remote.api == "greenroom"
    wish = {"input_type": asked.input_type, "instruction": asked.instruction}
    own = {**wish, "truncate": asked.truncate or None}
    if not is_own and any(own.values()):
        raise wire.unsupported("`input_type`, `instruction` or `truncate`", remote.api)
    encoding = {"encoding_format": "base64" if is_own else "float", "dimensions": asked.dimensions}
    body = {"model": model, "input": asked.texts, **encoding, **own}
    return wire.Call("/embeddings", _given(body), VectorReader(len(asked.texts)))


def score_call(_: InferenceRequest, asked: asks.ScoreInput, model: str, remote: Remote) -> wire.Call:
    """Return the call that scores documents: one query's as a ranking, others as pairs."""
    queries, documents = ([pair[side] for pair in asked.pairs] for side in (0, 1))
    body: dict[str, Any] = {"model": model, "instruction": asked.instruction or None}
    if len(set(queries)) == 1:
        body |= {"query": queries[0], "documents": documents, "max_tokens_per_doc": asked.document_tokens}
        body["truncation"] = None if asked.truncate else False
        return wire.Call("/rerank", _given(body), ScoreReader(len(documents)))
    body |= {"text_1": queries, "text_2": documents}
    return wire.Call("/score", _given(body), ScoreReader(len(documents)))


def speech_call(_: InferenceRequest, asked: asks.SpeechInput, model: str, remote: Remote) -> wire.Call:
    is_own = remote.api == "greenroom"
    voice = None if asked.reference is None else wire.encoded(Path(asked.reference).read_bytes())
    own = {"language": asked.language, "ref_text": asked.reference_text, "ref_audio": voice}
    if not is_own and any(own.values()):
        raise wire.unsupported("A language, or a voice to imitate,", remote.api)
    body = {
        "model": model,
        "input": asked.text,
        "voice": asked.voice or (None if is_own else "alloy"),
        "response_format": "wav",
        "speed": None if asked.speed == 1.0 else asked.speed,
        "instructions": asked.instructions or None,
        **own,
    }
    return wire.Call("/audio/speech", _given(body), SpeechReader(), is_binary=True)


def transcription_call(
    request: InferenceRequest, asked: asks.TranscriptionInput, model: str, remote: Remote
) -> wire.Call:
    given = {"language": asked.language, "prompt": asked.prompt or None, "temperature": asked.temperature}
    given |= wire.parameters_of(request)
    fields: dict[str, Any] = {"model": model, "response_format": "verbose_json"}
    fields |= {name: str(value) for name, value in _given(given).items()}
    if asked.word_timestamps:
        fields["timestamp_granularities[]"] = ["word", "segment"]
    path = "/audio/translations" if asked.task == "translate" else "/audio/transcriptions"
    return wire.Call(path, fields, TranscriptReader(), file=asked.file)


def _given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _entries(found: Any, count: int) -> Iterator[tuple[int, JsonObject]]:
    """Yield the entries of a list with their places. Raises BrokenAnswer: It has not one for each text."""
    entries = wire.items_of(found)
    places = [each.get("index", at) for at, each in enumerate(entries)]
    if len(places) != count or {wire.index_of(place, count) for place in places} != {*range(count)}:
        raise wire.BrokenAnswer("a list that has not one entry for each text")
    return zip(places, entries, strict=True)


class VectorReader(wire.Reader):
    """Reads a list of embeddings.

    Args:
        texts: Number of texts.
    """

    most = 128 * 1024 * 1024

    def __init__(self, texts: int) -> None:
        self._texts = texts

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        for place, each in _entries(data.get("data"), self._texts):
            yield Vector(_numbers(each.get("embedding")), place)
        end = Finished("stop", usage_of(wire.members_of(data.get("usage"))))
        self.finished = True
        yield end


def _numbers(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            value = struct.unpack(f"<{len(value) * 3 // 16}f", base64.b64decode(value, validate=True))
        packed = struct.pack(f"<{len(value)}f", *value)
        if 0 < len(value) <= MAX_DIMENSIONS and all(map(math.isfinite, value)):
            return packed
    except (TypeError, ValueError, struct.error, OverflowError):
        pass
    raise wire.BrokenAnswer("a vector that is none of numbers")


class ScoreReader(wire.Reader):
    """Reads scores, of a ranking or of pairs.

    Args:
        documents: Number of documents.
    """

    most = 16 * 1024 * 1024

    def __init__(self, documents: int) -> None:
        self._documents = documents

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        for place, each in _entries(data.get("results") or data.get("data"), self._documents):
            value = wire.number_of(each.get("relevance_score", each.get("score")))
            if value is None:
                raise wire.BrokenAnswer("a score that is no number")
            yield Score(value, place)
        tokens = wire.members_of(data.get("meta"), "tokens").get("input_tokens")
        usage = usage_of(wire.members_of(data.get("usage")))
        self.finished = True
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

    most = 16 * 1024 * 1024

    def whole(self, data: JsonObject) -> Iterator[InferenceEvent]:
        if "text" not in data:
            raise wire.BrokenAnswer("a transcript without a text")
        text, duration = wire.text_of(data.get("text")), _seconds(data.get("duration"))
        yield Recording(duration, wire.text_of(data.get("language")) or None)
        words = [_word(each) for each in wire.items_of(data.get("words"))]
        segments = wire.items_of(data.get("segments"))
        for each in segments:
            start, end = _seconds(each.get("start")), _seconds(each.get("end"))
            own = [_word(word) for word in wire.items_of(each.get("words"))]
            heard = own or [word for word in words if start <= word.start < end]
            yield Segment(wire.text_of(each.get("text")), start, end, words=tuple(heard))
        if text and not segments:
            yield Segment(text, 0.0, duration, words=tuple(words))
        self.finished = True
        yield Finished("stop", Usage(heard=duration))


def _word(word: JsonObject) -> Word:
    text, known = wire.text_of(word.get("word")), wire.number_of(word.get("probability"))
    probability = known if known is not None and 0 <= known <= 1 else 1.0
    return Word(f" {text.lstrip()}", _seconds(word.get("start")), _seconds(word.get("end")), probability)


def _seconds(value: Any) -> float:
    return max(0.0, wire.number_of(value) or 0.0)
