"""Tempo change of speech at constant pitch (FFmpeg's `atempo`), for models with a fixed speed."""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
from av.error import BlockingIOError as NothingYet
from av.error import EOFError as Ended
from av.filter import Graph

from greenroom.engine.sound.speech.preparing.prepared_speech import Samples

_SLOWEST = 0.5
"""Lowest tempo one `atempo` filter supports; slower rates chain two."""
_BEHIND_SECONDS = 0.5
"""Seconds of silence appended at the end, so that the filter drops them instead of speech."""


class TempoFilter:
    """Converts speech to another tempo.

    Args:
        rate: Sample rate in Hz.
        tempo: Tempo factor; 2 is twice as fast.
    """

    def __init__(self, rate: int, tempo: float) -> None:
        self._rate = rate
        self._tempo = tempo
        self._position = self._heard = 0
        self._graph = Graph()
        source = self._graph.add_abuffer(sample_rate=rate, format="flt", layout="mono")
        stages = [tempo] if tempo >= _SLOWEST else [_SLOWEST, tempo / _SLOWEST]
        filters = [self._graph.add("atempo", f"{stage:.6f}") for stage in stages]
        self._graph.link_nodes(source, *filters, self._graph.add("abuffersink")).configure()

    def push(self, samples: Samples) -> Samples:
        """Return the output that is ready after these samples."""
        if not len(samples):
            return samples
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._position
        self._position += len(samples)
        self._graph.push(frame)
        return self._pull()

    def finish(self) -> Samples:
        """Return the rest, so that the total length is exact."""
        left = round(self._position / self._tempo) - self._heard
        if not self._position:
            return np.zeros(0, np.float32)
        behind = self.push(np.zeros(round(self._rate * self._tempo * _BEHIND_SECONDS), np.float32))
        self._graph.push(None)
        return np.concatenate([behind, self._pull()])[: max(0, left)]

    def _pull(self) -> Samples:
        pulled = np.concatenate([np.zeros(0, np.float32), *self._frames()])
        self._heard += len(pulled)
        return pulled

    def _frames(self) -> Iterator[Samples]:
        while True:
            try:
                frame = self._graph.pull()
            except (NothingYet, Ended):
                return
            assert isinstance(frame, av.AudioFrame)
            yield frame.to_ndarray().reshape(-1).astype(np.float32)
