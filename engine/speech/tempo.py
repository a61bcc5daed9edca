"""Speech made faster or slower at the same pitch, for models that have one tempo (FFmpeg's `atempo`)."""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
from av.error import BlockingIOError as NothingYet
from av.error import EOFError as Ended
from av.filter import Graph

from greenroom.engine.speech.preparing.prepared_speech import Samples

_SLOWEST = 0.5
"""That one filter makes it; slower takes two."""


class TempoFilter:
    """Takes speech and returns it at another tempo.

    Args:
        rate: Samples a second.
        tempo: 2 is twice as fast.
    """

    def __init__(self, rate: int, tempo: float) -> None:
        self._rate = rate
        self._position = 0
        self._graph = Graph()
        source = self._graph.add_abuffer(sample_rate=rate, format="flt", layout="mono")
        stages = [tempo] if tempo >= _SLOWEST else [_SLOWEST, tempo / _SLOWEST]
        filters = [self._graph.add("atempo", f"{stage:.6f}") for stage in stages]
        self._graph.link_nodes(source, *filters, self._graph.add("abuffersink")).configure()

    def push(self, samples: Samples) -> Samples:
        """Return what is ready after these samples."""
        if not len(samples):
            return samples
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._position
        self._position += len(samples)
        self._graph.push(frame)
        return self._pull()

    def finish(self) -> Samples:
        """Return the rest."""
        if not self._position:
            return np.zeros(0, np.float32)
        self._graph.push(None)
        return self._pull()

    def _pull(self) -> Samples:
        return np.concatenate([np.zeros(0, np.float32), *self._frames()])

    def _frames(self) -> Iterator[Samples]:
        while True:
            try:
                frame = self._graph.pull()
            except (NothingYet, Ended):
                return
            assert isinstance(frame, av.AudioFrame)
            yield frame.to_ndarray().reshape(-1).astype(np.float32)
