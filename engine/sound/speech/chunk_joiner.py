"""Joining of speech chunks without clicks: each piece fades out and the next one fades in."""

from __future__ import annotations

import numpy as np

from greenroom.engine.sound.speech.preparing.prepared_speech import Samples

FADE_SECONDS = 0.005
"""Length of each fade in seconds. A cross-fade would shorten the speech; separate fades keep its length."""


class ChunkJoiner:
    """Joins pieces that arrive in chunks; start and end of the whole speech are not faded.

    Args:
        rate: Sample rate in Hz.
    """

    def __init__(self, rate: int) -> None:
        count = max(1, round(rate * FADE_SECONDS))
        self._rising: Samples = np.square(np.sin(np.linspace(0, np.pi / 2, count, dtype=np.float32)))
        self._held: Samples = np.zeros(0, np.float32)
        self._position: int | None = None

    def push(self, samples: Samples) -> Samples:
        """Return the samples that can be played now; the piece's last milliseconds are held back."""
        joined = np.concatenate([self._held, self._fade_in(samples)])
        kept = min(len(joined), len(self._rising))
        self._held = joined[len(joined) - kept :]
        return joined[: len(joined) - kept]

    def end_piece(self, last: bool) -> Samples:
        """Return the rest of the piece, faded out unless it is the last one."""
        held, self._held = self._held, np.zeros(0, np.float32)
        if not last:
            held = held * self._rising[: len(held)][::-1]
            self._position = 0
        return held

    def _fade_in(self, samples: Samples) -> Samples:
        """Return the next samples of a piece, faded in at its beginning."""
        if self._position is None:
            return samples
        ramp = self._rising[self._position : self._position + len(samples)]
        self._position += len(ramp)
        if self._position >= len(self._rising):
            self._position = None
        return np.concatenate([samples[: len(ramp)] * ramp, samples[len(ramp) :]])
