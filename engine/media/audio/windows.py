"""Splitting of a recording into a model's input windows, cut in pauses."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.engine.media.audio.samples import Samples

SILENCE = 3e-4
"""RMS level below which audio counts as silent (-70 dB).

It is below a quiet room's level and above the noise of 16-bit samples. Models get no silence: Whisper
hallucinates words in it.
"""

_FRAME_SECONDS = 0.02
_PAUSE_SECONDS = 0.2
"""Shortest pause in which a window may be cut."""
_PAUSE_LEVEL = 0.1
"""Loudness of a pause, relative to the window's median."""
_SEARCHED_SECONDS = 5.0
"""Length of a full window's end that is searched for a pause.

A model pads a shorter window with silence. In windows of 21 to 25 s Whisper wrote passages of the text before
again, instead of what was said.
"""
_LONG_SILENCE_SECONDS = 2.0
"""Length in seconds of a silence that ends a window, or is skipped before one."""
_KEPT_SECONDS = 0.5
"""Seconds that are kept of a long silence."""


@attrs.frozen(eq=False)
class Window:
    """One input window of a model.

    Args:
        start: Start in samples from the beginning of the recording.
        is_last: True if nothing follows.
    """

    samples: Samples
    start: int
    is_last: bool


class WindowBuffer:
    """A buffer of the samples that the next window may need.

    Args:
        rate: Sample rate in Hz.
        seconds: Longest window in seconds.
    """

    def __init__(self, rate: int, seconds: float) -> None:
        self._rate = rate
        self._most = round(rate * seconds)
        self._blocks: list[Samples] = []
        self._held = 0
        self._ended = False
        self.position = 0
        """Earliest start of the next window, in samples."""

    @property
    def heard(self) -> int:
        """Number of samples received."""
        return self.position + self._held

    @property
    def is_ready(self) -> bool:
        """True if the next window can be cut: more samples would not change it."""
        return self._ended or self._held >= self._most

    @property
    def is_over(self) -> bool:
        """True if the whole recording has been consumed."""
        return self._ended and not self._held

    def add(self, block: Samples) -> None:
        self._blocks.append(block)
        self._held += len(block)

    def end(self) -> None:
        self._ended = True

    def next_window(self) -> Window | None:
        """Return the next window, once it is ready; None if the rest, or all that is buffered, is silence.

        Skips silence before the window: `position` moves on to its start.
        """
        held = self._joined()
        loudness = self._loudness(held)
        silent = self._leading_silence(loudness)
        if silent >= len(held) or (silent and not self._ended):
            # Skipping silence shortens the buffer; it must fill again before a window is cut.
            self.advance(silent)
            return self.next_window() if self.is_ready and self._held else None
        self.advance(silent)
        held, loudness = held[silent:], loudness[silent // self._frame :]
        size = self._window_size(held, loudness)
        return Window(held[:size], self.position, self._ended and size == len(held))

    def advance(self, samples: int) -> None:
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
        """Return the RMS of each frame; the last frame may be short."""
        frame = self._frame
        padded = np.pad(samples, (0, -len(samples) % frame)).reshape(-1, frame)
        loudness: Samples = np.sqrt(np.mean(np.square(padded), axis=1))
        return loudness

    def _leading_silence(self, loudness: Samples) -> int:
        """Return the number of silent samples to skip, in whole frames; 0 if the silence is short."""
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
        """Return the middle of the quietest place late in a full window if it is a pause; else 0."""
        length = round(_PAUSE_SECONDS / _FRAME_SECONDS)
        first = max(0, len(loudness) - round(_SEARCHED_SECONDS / _FRAME_SECONDS))
        smoothed = np.convolve(loudness[first:], np.ones(length) / length, mode="valid")
        if not len(smoothed) or smoothed.min() > _PAUSE_LEVEL * float(np.median(loudness)):
            return 0
        quietest = np.flatnonzero(smoothed <= smoothed.min() * 1.05)[-1]
        return (first + int(quietest) + length // 2) * self._frame


def _first_run(mask: NDArray[np.bool_], length: int) -> int | None:
    """Return the start of the first run of `length` true values that does not begin at index 0, or None."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start >= length and start > 0:
            return int(start)
    return None
