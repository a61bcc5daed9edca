"""The timed segments of a window, and their words with times and probabilities."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import pairwise

import attrs
import mlx.core as mx
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.engine.sound.transcription.whisper_decoding import WindowDecoder
from greenroom.schemas.events.result_events import Word

_POSITION_SECONDS = 0.02
_BEFORE_WORD = "\"'“¿([{-"
_AFTER_WORD = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
_SENTENCE_ENDS = ".。!！?？"  # noqa: RUF001
_LONGEST_USUAL = 0.7
_MOST_HEADS = 16  # Limit of attention heads used; models that do not name their alignment heads have hundreds


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
    """Return each segment's words, with times from the window's beginning. `beginning`: control tokens of the
    language and task of the transcript; `frames`: length of the window's audio, in frames of 10 ms.
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


# Token times by dynamic time warping over Whisper's cross-attention.
#
# The method is that of OpenAI's `timing.py` (after Giorgino, J. Stat. Softw. 31, 2009). mlx-audio implements
# it element by element in Python, which holds the GIL for seconds in each window.

Matrix = NDArray[np.float32]

_MEDIAN_WIDTH = 7


def normalize(weights: Matrix) -> Matrix:
    """Return attention standardized over tokens and median-filtered over positions. `weights`: attention of
    one head, `[tokens, positions]`.
    """
    spread = weights.std(axis=-2, keepdims=True)
    normalized = (weights - weights.mean(axis=-2, keepdims=True)) / np.where(spread > 0, spread, 1)
    return _smoothed(np.nan_to_num(normalized))


def token_times(attention: Matrix) -> NDArray[np.intp]:
    """Return the audio position at which each token begins, `[tokens]`. `attention`: the mean over heads,
    normalized, `[tokens, positions]`.
    """
    tokens, positions = _cheapest_path(-attention)
    begins: NDArray[np.intp] = positions[np.concatenate([[True], np.diff(tokens) > 0])]
    return begins


def _smoothed(head: Matrix) -> Matrix:
    margin = _MEDIAN_WIDTH // 2
    if head.shape[-1] <= margin:
        return head
    padded = np.pad(head, ((0, 0), (margin, margin)), mode="reflect")
    windows = sliding_window_view(padded, _MEDIAN_WIDTH, axis=-1)
    median: Matrix = np.partition(windows, margin, axis=-1)[..., margin]
    return median


def _cheapest_path(costs: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the cheapest path from the first corner to the last, in single steps.

    Computed by anti-diagonals, each of which depends on the two before.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    step = np.zeros((rows + 1, columns + 1), np.int8)
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        row = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        column = diagonal - row
        ways = np.stack([total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]])
        # Among equal costs, OpenAI's code takes the last one.
        chosen = np.where(
            (ways[0] < ways[1]) & (ways[0] < ways[2]),
            0,
            np.where((ways[1] < ways[0]) & (ways[1] < ways[2]), 1, 2),
        )
        total[row, column] = costs[row - 1, column - 1] + ways[chosen, np.arange(len(row))]
        step[row, column] = chosen
    step[0, :], step[:, 0] = 2, 1
    return _walk_back(step)


def _walk_back(step: NDArray[np.int8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    row, column = step.shape[0] - 1, step.shape[1] - 1
    path = []
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        taken = step[row, column]
        row -= taken != 2
        column -= taken != 1
    rows, columns = np.array(path[::-1]).T
    return rows, columns


# Splitting of a window's tokens into timed segments, and the start of the next window.
#
# Source: arXiv:2212.04356, section 4.5.

SECONDS_PER_TIMESTAMP = 0.02
FRAMES_PER_TIMESTAMP = 2
_LEAST_PROGRESS = 100
"""Smallest advance per window, in frames of 10 ms: a model may always end its first segment at once."""
_SPARSE_SECONDS = 8.0
_SPARSE_TOKENS = 1.0
"""A longer stretch with fewer tokens per second has hardly been heard: slow speech has two."""


@attrs.frozen
class TimedTokens:
    """A segment's tokens and times. `start`: start in seconds from the window's beginning; `end`: end in
    seconds from the window's beginning.
    """

    tokens: tuple[int, ...]
    start: float
    end: float


@attrs.frozen
class SplitWindow:
    """A window's segments. `frames`: length of the transcribed part, in frames of 10 ms; `is_whole`: True if
    the window was transcribed to its end.
    """

    segments: tuple[TimedTokens, ...]
    frames: int
    is_whole: bool


def split_window(tokens: Sequence[int], first_timestamp: int, frames: int) -> SplitWindow:
    """Split a window's tokens at pairs of time stamps: one segment's end and the next one's start.
    `first_timestamp`: id of the token `<|0.00|>`; `frames`: length of the window, in frames of 10 ms.
    """
    stamps = [token >= first_timestamp for token in tokens]
    seconds = frames / 100
    cuts = [at + 1 for at, (one, other) in enumerate(pairwise(stamps)) if one and other]
    ends_in_one_stamp = stamps[-2:] == [False, True]
    if not cuts:
        # Without a pair, all is one segment, up to the last stamp if that is later than "0.00".
        last = next((token for token in reversed(tokens) if token > first_timestamp), None)
        end = seconds if last is None else min(seconds, (last - first_timestamp) * SECONDS_PER_TIMESTAMP)
        return SplitWindow((TimedTokens(tuple(tokens), 0.0, end),), frames, True)
    if ends_in_one_stamp:
        cuts.append(len(tokens))
    segments = []
    for start, end in pairwise([0, *cuts]):
        piece = tokens[start:end]
        times = [(token - first_timestamp) * SECONDS_PER_TIMESTAMP for token in (piece[0], piece[-1])]
        segments.append(TimedTokens(tuple(piece), min(times[0], seconds), min(times[1], seconds)))
    if ends_in_one_stamp:
        return SplitWindow(tuple(segments), frames, True)
    # The incomplete segment after the last pair is transcribed again in the next window.
    understood = (tokens[cuts[-1] - 1] - first_timestamp) * FRAMES_PER_TIMESTAMP
    if not _LEAST_PROGRESS <= understood < frames:
        rest = tuple(tokens[cuts[-1] :])
        began = min((rest[0] - first_timestamp) * SECONDS_PER_TIMESTAMP, seconds)
        return SplitWindow((*segments, TimedTokens(rest, began, seconds)), frames, True)
    return SplitWindow(tuple(segments), understood, False)


def misses_speech(split: SplitWindow, end: int, frames: int) -> bool:
    """Return whether a long stretch of a window has hardly any text, within a segment or behind the last.

    Args:
        end: Id of the token that ends a text; lower ids are text.
        frames: Length of the window, in frames of 10 ms.
    """
    stretches = [
        (each.end - each.start, sum(token < end for token in each.tokens)) for each in split.segments
    ]
    if split.is_whole:
        stretches.append((frames / 100 - split.segments[-1].end, 0))
    return any(
        seconds >= _SPARSE_SECONDS and count < seconds * _SPARSE_TOKENS for seconds, count in stretches
    )
