"""Downmixing and resampling of a recording's frames, on the calling thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.engine.media.audio.containers import import_av

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame


class Resampler:
    """Converts frames of one layout to mono frames of 32-bit floats.

    PyAV's `AudioResampler` does the same, but starts a thread per core.

    Args:
        first: The first frame, whose layout and rate the others share.
        rate: Target sample rate in Hz.
    """

    def __init__(self, first: AudioFrame, rate: int) -> None:
        av = import_av()
        self._blocking, self._ended = av.BlockingIOError, av.EOFError
        self._source = _shape(first)
        self._graph: Any = av.filter.Graph()
        self._graph.threads = 1
        source = self._graph.add(
            "abuffer",
            sample_rate=str(first.sample_rate),
            sample_fmt=first.format.name,
            channel_layout=first.layout.name,
            time_base=f"1/{first.sample_rate}",
        )
        wanted = self._graph.add("aformat", sample_rates=str(rate), sample_fmts="flt", channel_layouts="mono")
        sink = self._graph.add("abuffersink")
        source.link_to(wanted)
        wanted.link_to(sink)
        self._graph.configure()

    def takes(self, frame: AudioFrame) -> bool:
        """Return whether a frame has the first frame's layout and rate."""
        return _shape(frame) == self._source

    def resample(self, frame: AudioFrame) -> list[AudioFrame]:
        """Return the output frames for a frame; perhaps none yet."""
        frame.pts = None  # Otherwise broken time stamps make the filter insert silence.
        return self._push(frame)

    def finish(self) -> list[AudioFrame]:
        return self._push(None)

    def _push(self, frame: AudioFrame | None) -> list[AudioFrame]:
        self._graph.push(frame)
        frames: list[AudioFrame] = []
        while True:
            try:
                frames.append(self._graph.pull())
            except (self._blocking, self._ended):
                return frames


def _shape(frame: AudioFrame) -> tuple[str, str, int, int]:
    return frame.format.name, frame.layout.name, frame.layout.nb_channels, frame.sample_rate
