"""Which token Whisper may write next: the rules of time stamps, as in OpenAI's `decoding.py`.

mlx-audio's own copy of them compares positions with token ids, so that its time stamps may go backwards. All
is computed lazily: the next step is launched before this one's token is read.
"""

from __future__ import annotations

import attrs
import mlx.core as mx

from greenroom.engine.sound.transcription.whisper.vocabulary import WhisperVocabulary

_FIRST_TIMESTAMP_AT_MOST = 50
"""Time stamps (of 20 ms) after the beginning: a window begins with speech in its first second."""


@attrs.frozen(eq=False)
class WrittenTokens:
    """What the rules depend on; arrays of one element.

    Args:
        last: Token that was written last; None if there is none.
        pair_complete: Whether the token before it was a time stamp, or there is none.
        timestamp: The last time stamp.
    """

    last: mx.array | None
    pair_complete: mx.array
    timestamp: mx.array


class TokenRules:
    """The rules of one model.

    Args:
        size: Of its vocabulary, in tokens.
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
        """Return what there is at a window's beginning."""
        return WrittenTokens(None, mx.array([True]), mx.array([self._first]))

    def add(self, written: WrittenTokens, token: mx.array) -> WrittenTokens:
        """Return what is written once `token`, `[1]`, is."""
        complete = mx.array([True]) if written.last is None else written.last >= self._first
        return WrittenTokens(token, complete, mx.where(token >= self._first, token, written.timestamp))

    def filter(self, logits: mx.array, written: WrittenTokens) -> mx.array:
        """Return logits, `[1, vocabulary]`, of what may follow; all else is minus infinity."""
        logits = mx.where(self._forbidden(written), -mx.inf, logits)
        # Where a time stamp of any kind is likelier than the likeliest text, one is written.
        of_timestamps = mx.where(self._is_timestamp, logits, -mx.inf).logsumexp(axis=-1, keepdims=True)
        of_text = mx.where(self._is_timestamp, -mx.inf, logits).max(axis=-1, keepdims=True)
        return mx.where((of_timestamps > of_text) & ~self._is_timestamp, -mx.inf, logits)

    def _forbidden(self, written: WrittenTokens) -> mx.array:
        if written.last is None:
            return self._never_first
        after_timestamp = written.last >= self._first
        opened = after_timestamp & ~written.pair_complete
        # Time stamps come in pairs, the end of a segment and the beginning of the next, and never go back;
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
