"""Whisper's rules for time stamps, as a logits processor; the same as in OpenAI's `decoding.py`.

mlx-audio's own copy compares positions with token ids, so that its time stamps may go backwards. All
operations are lazy: the next step is launched before this step's token is read.
"""

from __future__ import annotations

import attrs
import mlx.core as mx

from greenroom.engine.sound.transcription.whisper.vocabulary import WhisperVocabulary

_FIRST_TIMESTAMP_AT_MOST = 50
"""Latest first time stamp, in units of 20 ms: a window begins with speech in its first second."""


@attrs.frozen(eq=False)
class WrittenTokens:
    """The tokens of a window so far, as far as the rules for time stamps depend on them.

    All values are arrays of one element.

    Args:
        last: The last token; None if there is none.
        pair_complete: True if the token before it was a time stamp, or does not exist.
        timestamp: The last time stamp.
    """

    last: mx.array | None
    pair_complete: mx.array
    timestamp: mx.array


class TokenRules:
    """The rules for one model's vocabulary.

    Args:
        size: Number of tokens in the vocabulary.
    """

    def __init__(self, vocabulary: WhisperVocabulary, size: int) -> None:
        self._first = vocabulary.first_timestamp
        self._end = vocabulary.end
        self._ids = mx.arange(size)[None]
        self._is_timestamp = self._ids >= self._first
        never = {*vocabulary.suppressed, vocabulary.no_timestamps}
        self._never = self._mask(never, size)
        self._never_first = self._mask({*never, *vocabulary.blank}, size) | ~self._is_timestamp
        self._never_first |= self._ids > self._first + _FIRST_TIMESTAMP_AT_MOST
        mx.eval(self._ids, self._is_timestamp, self._never, self._never_first)

    def nothing_written(self) -> WrittenTokens:
        """Return the state at a window's beginning."""
        return WrittenTokens(None, mx.array([True]), mx.array([self._first]))

    def add(self, written: WrittenTokens, token: mx.array) -> WrittenTokens:
        """Return the state after `token`, `[1]`."""
        complete = mx.array([True]) if written.last is None else written.last >= self._first
        return WrittenTokens(token, complete, mx.where(token >= self._first, token, written.timestamp))

    def filter(self, logits: mx.array, written: WrittenTokens) -> mx.array:
        """Return logits, `[1, vocabulary]`, with forbidden tokens set to minus infinity."""
        logits = mx.where(self._forbidden(written), -mx.inf, logits)
        # If all time stamps together are likelier than the likeliest text token, text is forbidden.
        of_timestamps = mx.where(self._is_timestamp, logits, -mx.inf).logsumexp(axis=-1, keepdims=True)
        of_text = mx.where(self._is_timestamp, -mx.inf, logits).max(axis=-1, keepdims=True)
        return mx.where((of_timestamps > of_text) & ~self._is_timestamp, -mx.inf, logits)

    def _forbidden(self, written: WrittenTokens) -> mx.array:
        if written.last is None:
            return self._never_first
        after_timestamp = written.last >= self._first
        opened = after_timestamp & ~written.pair_complete
        # Time stamps come in pairs, a segment's end and the next one's start, and never go back;
        # no segment is empty.
        earliest = mx.where(opened, written.timestamp, written.timestamp + 1)
        return (
            self._never
            | (self._is_timestamp & ((self._ids < earliest) | (after_timestamp & written.pair_complete)))
            | ((self._ids < self._end) & opened)
        )

    @staticmethod
    def _mask(tokens: set[int], size: int) -> mx.array:
        mask = mx.zeros((1, size), dtype=mx.bool_)
        mask[:, mx.array(sorted(token for token in tokens if 0 <= token < size))] = True
        return mask
