"""The words of a window's segments, with times and probabilities."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import pairwise

import attrs
import mlx.core as mx
import numpy as np

from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.sound.transcription.whisper.alignment import normalize, token_times
from greenroom.engine.sound.transcription.whisper.segments import TimedTokens
from greenroom.engine.sound.transcription.whisper.window_decoding import WindowDecoder
from greenroom.schemas.events.result_events import Word

_POSITION_SECONDS = 0.02
_BEFORE_WORD = "\"'“¿([{-"
_AFTER_WORD = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
_SENTENCE_ENDS = ".。!！?？"  # noqa: RUF001
_LONGEST_USUAL = 0.7
_MOST_HEADS = 16
"""Limit of attention heads used; models that do not name their alignment heads have hundreds."""


@attrs.define
class _TimedWord:
    text: str
    tokens: list[int]
    start: float
    end: float
    probability: float


def find_words(
    decoder: WindowDecoder,
    features: mx.array,
    beginning: Sequence[int],
    language: str,
    segments: Sequence[TimedTokens],
    frames: int,
    clock: TimeBudget,
) -> Generator[None, None, list[tuple[Word, ...]]]:
    """Return each segment's words, with times from the window's beginning.

    Args:
        beginning: Control tokens of the language and task of the transcript.
        frames: Length of the window's audio, in frames of 10 ms.
    """
    end = decoder.vocabulary.end
    texts = [[token for token in segment.tokens if token < end] for segment in segments]
    tokens = [token for text in texts for token in text]
    words = yield from _align(decoder, features, beginning, language, tokens, frames, clock)
    _shorten_at_sentence_ends(words)
    _attach_punctuation(words)
    found, remaining = [], iter(words)
    for text in texts:
        own: list[_TimedWord] = []
        count = 0
        while count < len(text) and (word := next(remaining, None)) is not None:
            count += len(word.tokens)
            own.append(word)
        found.append(
            tuple(Word(word.text, word.start, word.end, word.probability) for word in own if word.text)
        )
    return found


def _align(
    decoder: WindowDecoder,
    features: mx.array,
    beginning: Sequence[int],
    language: str,
    tokens: list[int],
    frames: int,
    clock: TimeBudget,
) -> Generator[None, None, list[_TimedWord]]:
    if not tokens:
        return []
    vocabulary, model = decoder.vocabulary, decoder.model
    sequence = [*beginning, vocabulary.no_timestamps, *tokens, vocabulary.end]
    logits, _, attention = model.decoder(mx.array([sequence]), features)
    heads = model.alignment_heads.tolist()[-_MOST_HEADS:]
    weights = mx.stack([attention[layer][0, head] for layer, head in heads])
    weights = mx.softmax(weights[:, :, : max(1, frames // 2)].astype(mx.float32), axis=-1, precise=True)
    first = len(beginning)
    probabilities = mx.softmax(logits[0, first:-2, : vocabulary.end].astype(mx.float32), axis=-1)
    of_tokens = mx.take_along_axis(probabilities, mx.array(tokens)[:, None], axis=1)[:, 0]
    mean = np.zeros(weights.shape[1:], np.float32)
    for head in weights:
        mean += normalize(np.array(head)) / len(heads)
        if clock.is_over:
            yield
    # A token's time is in the attention of the position that predicts it; the end token's own is unused.
    starts = token_times(mean[first:-1]) * _POSITION_SECONDS
    chances = np.nan_to_num(np.array(of_tokens))
    tokenizer = model.get_tokenizer(language=language)
    texts, parts = tokenizer.split_to_word_tokens([*tokens, vocabulary.end])
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts[:-1]])]).astype(int)
    return [
        _TimedWord(
            text, list(part), float(starts[one]), float(starts[other]), float(chances[one:other].mean())
        )
        for text, part, (one, other) in zip(texts[:-1], parts[:-1], pairwise(bounds), strict=True)
        if one < other
    ]


def _shorten_at_sentence_ends(words: list[_TimedWord]) -> None:
    """Shorten words at the ends of sentences, whose times would otherwise include the pauses between them."""
    durations = [word.end - word.start for word in words if word.end > word.start]
    longest = 2 * min(_LONGEST_USUAL, float(np.median(durations))) if durations else math.inf
    for before, word in pairwise(words):
        if word.end - word.start > longest:
            if word.text in _SENTENCE_ENDS:
                word.end = word.start + longest
            elif before.text in _SENTENCE_ENDS:
                word.start = word.end - longest


def _attach_punctuation(words: list[_TimedWord]) -> None:
    """Attach punctuation to the adjacent word; a token that gave away its text becomes empty."""
    for before, word in reversed(list(pairwise(words))):
        if before.text.startswith(" ") and before.text.strip() in _BEFORE_WORD:
            word.text, word.tokens = before.text + word.text, before.tokens + word.tokens
            before.text, before.tokens = "", []
    previous: _TimedWord | None = None
    for word in words:
        if (
            previous is not None
            and word.text
            and word.text in _AFTER_WORD
            and not previous.text.endswith(" ")
        ):
            previous.text, previous.tokens = previous.text + word.text, previous.tokens + word.tokens
            word.text, word.tokens = "", []
        elif word.text:
            previous = word
