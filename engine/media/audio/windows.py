"""A recording in windows that a model hears at once: cut where nobody speaks."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.engine.media.audio.samples import Samples

SILENCE = 3e-4
"""Root mean square below which a recording is silent (-70 dB): less than a quiet room has, and more than the
noise of 16-bit samples. A model is not asked what is said in it: Whisper makes up words there."""

_FRAME_SECONDS = 0.02
_PAUSE_SECONDS = 0.2
"""A pause at least is a place to cut."""
_PAUSE_LEVEL = 0.1
"""Loudness of a pause, beside what is usual in its window."""
_SEARCHED = 1 / 3
"""The part of a window, at its end, in which a pause is looked for."""
_LONG_SILENCE_SECONDS = 2.0
"""Of silence that ends a window, or is left out before one."""
_KEPT_SECONDS = 0.5
"""Of such a silence stay with the words before it."""


@attrs.frozen(eq=False)
class Window:
    """What a model hears at once.

    Args:
        start: Where it begins, in samples from the recording's beginning.
        is_last: Nothing follows.
    """

    samples: Samples
    start: int
    is_last: bool


class WindowBuffer:
    """Holds as much of a recording as the next window may need.

    Args:
        rate: Samples a second.
        seconds: Longest window.
    """

    def __init__(self, rate: int, seconds: float) -> None:
        self._rate = rate
        self._most = round(rate * seconds)
        self._blocks: list[Samples] = []
        self._held = 0
        self._ended = False
        self.position = 0
        """Where the next window begins at the earliest, in samples."""

    @property
    def heard(self) -> int:
        """Samples that have come."""
        return self.position + self._held

    @property
    def is_ready(self) -> bool:
        """Whether the next window can be cut: more would not change it."""
        return self._ended or self._held >= self._most

    @property
    def is_over(self) -> bool:
        """Whether all of the recording has been let go."""
        return self._ended and not self._held

    def add(self, block: Samples) -> None:
        """Append what follows."""
        self._blocks.append(block)
        self._held += len(block)

    def end(self) -> None:
        """Note that nothing follows."""
        self._ended = True

    def next_window(self) -> Window | None:
        """Return the next window, once it is ready; None if all that is left, or was held, is silence.

        Silence before it is left out: `position` has moved on to where it begins.
        """
        held = self._joined()
        loudness = self._loudness(held)
        silent = self._leading_silence(loudness)
        if silent >= len(held) or (silent and not self._ended):
            # What was left out has to be replaced before a window is cut.
            self.advance(silent)
            return self.next_window() if self.is_ready and self._held else None
        self.advance(silent)
        held, loudness = held[silent:], loudness[silent // self._frame :]
        size = self._window_size(held, loudness)
        return Window(held[:size], self.position, self._ended and size == len(held))

    def advance(self, samples: int) -> None:
        """Let go of the beginning of what is held."""
        held = self._joined()[samples:]
        self._blocks, self._held = [held], len(held)
        self.position += samples

    @property
    def _frame(self) -> int:
        return round(self._rate * _FRAME_SECONDS)

    def _joined(self) -> Samples:
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate([np.zeros(0, np.float32), *self._blocks])]
        return self._blocks[0]

    def _loudness(self, samples: Samples) -> Samples:
        """Return the root mean square of each frame; the last one may be short."""
        frame = self._frame
        padded = np.pad(samples, (0, -len(samples) % frame)).reshape(-1, frame)
        loudness: Samples = np.sqrt(np.mean(np.square(padded), axis=1))
        return loudness

    def _leading_silence(self, loudness: Samples) -> int:
        """Return the samples of silence to be left out, in whole frames; 0 if it is short."""
        loud = np.flatnonzero(loudness > SILENCE)
        if not len(loud):
            return self._held
        frames = int(loud[0]) - round(_KEPT_SECONDS / _FRAME_SECONDS)
        return frames * self._frame if frames * _FRAME_SECONDS >= _LONG_SILENCE_SECONDS else 0

    def _window_size(self, samples: Samples, loudness: Samples) -> int:
        size = min(len(samples), self._most)
        frames = loudness[: size // self._frame]
        quiet = _first_run(frames <= SILENCE, round(_LONG_SILENCE_SECONDS / _FRAME_SECONDS))
        if quiet is not None:
            return min(size, (quiet + round(_KEPT_SECONDS / _FRAME_SECONDS)) * self._frame)
        if len(samples) <= self._most and self._ended:
            return size
        return self._pause(frames) or size

    def _pause(self, loudness: Samples) -> int:
        """Return the middle of the quietest place late in a full window, if it is one; else 0."""
        length = round(_PAUSE_SECONDS / _FRAME_SECONDS)
        first = round(len(loudness) * (1 - _SEARCHED))
        smoothed = np.convolve(loudness[first:], np.ones(length) / length, mode="valid")
        if not len(smoothed) or smoothed.min() > _PAUSE_LEVEL * float(np.median(loudness)):
            return 0
        quietest = np.flatnonzero(smoothed <= smoothed.min() * 1.05)[-1]
        return (first + int(quietest) + length // 2) * self._frame


def _first_run(mask: NDArray[np.bool_], length: int) -> int | None:
    """Return where a run of so many true values begins, other than at the beginning."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start >= length and start > 0:
            return int(start)
    return None
