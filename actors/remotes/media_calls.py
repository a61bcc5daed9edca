"""Vectors, scores, speech and transcripts, asked of a remote in the words of OpenAI and Cohere."""

from __future__ import annotations

import io
import math
import struct
import wave
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from greenroom.actors.remotes import remote_call as wire
from greenroom.actors.remotes.chat_answers import usage_of
from greenroom.actors.remotes.remote_call import Events
from greenroom.schemas.events.events import Finished, Usage
from greenroom.schemas.events.result_events import AudioChunk, Recording, Score, Segment, Vector, Word
from greenroom.schemas.messages import requests as asks
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.settings.remotes import Remote

MAX_DIMENSIONS = 65_536
MEGABYTE = 1024 * 1024
_HEADER = 4_096


def embedding_call(_: InferenceRequest, asked: asks.EmbeddingInput, model: str, remote: Remote) -> wire.Call:
    is_own = remote.api == "greenroom"
    own: dict[str, Any] = {"input_type": asked.input_type, "instruction": asked.instruction}
    own["truncate"] = asked.truncate or None
    if not is_own and any(own.values()):
        raise wire.unsupported("`input_type`, `instruction` or `truncate`", remote.api)
    form = {"encoding_format": "base64" if is_own else "float", "dimensions": asked.dimensions}
    body = wire.given({"model": model, "input": asked.texts, **form, **(own if is_own else {})})
    return wire.Call("/embeddings", body, partial(_read_vectors, len(asked.texts)), most=128 * MEGABYTE)


def score_call(_: InferenceRequest, asked: asks.ScoreInput, model: str, remote: Remote) -> wire.Call:
    """Return the call that scores documents: one query's as a ranking, others as pairs."""
    queries, documents = ([pair[side] for pair in asked.pairs] for side in (0, 1))
    body: dict[str, Any] = {"model": model, "instruction": asked.instruction or None}
    is_ranking = len(set(queries)) == 1
    if is_ranking:
        body |= {"query": queries[0], "documents": documents, "max_tokens_per_doc": asked.document_tokens}
        body["truncation"] = None if asked.truncate else False
    else:
        body |= {"text_1": queries, "text_2": documents}
    path, read = "/rerank" if is_ranking else "/score", partial(_read_scores, len(documents))
    return wire.Call(path, wire.given(body), read, most=16 * MEGABYTE)


def speech_call(_: InferenceRequest, asked: asks.SpeechInput, model: str, remote: Remote) -> wire.Call:
    is_own = remote.api == "greenroom"
    voice = None if asked.reference is None else b64encode(Path(asked.reference).read_bytes()).decode()
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
    reader = SpeechReader()
    return wire.Call("/audio/speech", wire.given(body), reader.read, "sound", reader.end)


def transcription_call(
    request: InferenceRequest, asked: asks.TranscriptionInput, model: str, remote: Remote
) -> wire.Call:
    wishes = {"language": asked.language, "prompt": asked.prompt or None, "temperature": asked.temperature}
    wishes = wire.given({**wishes, **wire.parameters_of(request)})
    fields: dict[str, Any] = {name: str(value) for name, value in wishes.items()}
    fields |= {"model": model, "response_format": "verbose_json"}
    if asked.word_timestamps:
        fields["timestamp_granularities[]"] = ["word", "segment"]
    path = "/audio/translations" if asked.task == "translate" else "/audio/transcriptions"
    return wire.Call(path, fields, _read_transcript, most=16 * MEGABYTE, file=asked.file)


def _entries(found: list[JsonObject], count: int) -> Iterator[tuple[int, JsonObject]]:
    """Yield the entries of a list with their places. Raises BrokenAnswer: It has not one for each text."""
    places = [wire.index_of(each.get("index", at), count) for at, each in enumerate(found)]
    if sorted(places) != [*range(count)]:
        raise wire.BrokenAnswer("a list that has not one entry for each text")
    return zip(places, found, strict=True)


def _read_vectors(texts: int, data: JsonObject) -> Events:
    for place, each in _entries(wire.items_of(data, "data"), texts):
        yield Vector(_numbers(each.get("embedding")), place)
    yield Finished("stop", usage_of(wire.member(data, "usage", dict)))


def _numbers(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            value = struct.unpack(f"<{len(value) * 3 // 16}f", b64decode(value, validate=True))
        packed = struct.pack(f"<{len(value)}f", *value)
        if 0 < len(value) <= MAX_DIMENSIONS and all(map(math.isfinite, value)):
            return packed
    except (TypeError, ValueError, struct.error, OverflowError):
        pass
    raise wire.BrokenAnswer("a vector that is none of numbers")


def _read_scores(documents: int, data: JsonObject) -> Events:
    found = wire.items_of(data, "results") or wire.items_of(data, "data")
    for place, each in _entries(found, documents):
        value = wire.number_of(each.get("relevance_score", each.get("score")))
        if value is None:
            raise wire.BrokenAnswer("a score that is no number")
        yield Score(value, place)
    usage, tokens = usage_of(wire.member(data, "usage", dict)), wire.member(data, "meta.tokens", dict)
    yield Finished("stop", usage if usage.prompt else Usage(prompt=wire.count_of(tokens.get("input_tokens"))))


class SpeechReader:
    """Reads speech as a WAV file of one channel with 16 bits, piece by piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._rate = self._size = 0

    def read(self, data: bytes) -> Events:
        self._rest += data
        if not self._rate and not self._has_begun():
            return
        whole = len(self._rest) // 2 * 2
        samples, self._rest = self._rest[:whole], self._rest[whole:]
        if samples:
            self._size += whole
            yield AudioChunk(samples, self._rate)

    def end(self) -> Events:
        if not self._size:
            raise wire.BrokenAnswer("speech without a sound")
        yield Finished("stop", Usage(spoken=self._size / 2 / self._rate))

    def _has_begun(self) -> bool:
        """Take the rate from the header, and leave the samples; return whether the header is complete."""
        # The size in a stream's header means nothing.
        file = io.BytesIO(self._rest[:4] + b"\xff" * 4 + self._rest[8:])
        try:
            with wave.open(file) as sound:
                rate, form = sound.getframerate(), (sound.getnchannels(), sound.getsampwidth())
                begins = file.tell()
        except (EOFError, RuntimeError, wave.Error):  # the second of a chunk beyond all sizes
            if len(self._rest) > _HEADER:
                raise wire.BrokenAnswer("sound that is no WAV file") from None
            return False
        if form != (1, 2) or not 4_000 <= rate <= 192_000:
            raise wire.BrokenAnswer("sound that is not of one channel with 16 bits")
        self._rate, self._rest = rate, self._rest[begins:]
        return True


def _read_transcript(data: JsonObject) -> Events:
    if "text" not in data:
        raise wire.BrokenAnswer("a transcript without a text")
    text, duration = wire.member(data, "text", str), _seconds(data, "duration")
    yield Recording(duration, wire.member(data, "language", str) or None)
    words = deque(sorted(map(_word, wire.items_of(data, "words")), key=lambda word: word.start))
    segments = wire.items_of(data, "segments")
    for each in segments:
        start, end = _seconds(each, "start"), _seconds(each, "end")
        own, heard = [_word(word) for word in wire.items_of(each, "words")], []
        while words and words[0].start < end:  # each is given to one segment: both lists may be long
            heard.append(words.popleft())
        yield Segment(wire.member(each, "text", str), start, end, words=tuple(own or heard))
    if text and not segments:
        yield Segment(text, 0.0, duration, words=tuple(words))
    yield Finished("stop", Usage(heard=duration))


def _word(word: JsonObject) -> Word:
    known = wire.number_of(word.get("probability"))
    probability = known if known is not None and 0 <= known <= 1 else 1.0
    text = f" {wire.member(word, 'word', str).lstrip()}"
    return Word(text, _seconds(word, "start"), _seconds(word, "end"), probability)


def _seconds(data: JsonObject, name: str) -> float:
    return max(0.0, wire.number_of(data.get(name)) or 0.0)
