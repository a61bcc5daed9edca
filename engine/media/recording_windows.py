"""Reading of a recording, and its splitting into a model's input windows, cut in pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from queue import Empty, Queue

import attrs
import numpy as np
from numpy.typing import NDArray

from greenroom.engine.media import decoders
from greenroom.engine.media.decoders import DECODERS
from greenroom.engine.media.recordings import AudioFacts, OpenedRecording, Samples
from greenroom.engine.resources.preparation_steps import PENDING, ClientSemaphore, PreparationSteps
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, invalid

SILENCE = 3e-4
"""RMS level below which audio counts as silent (-70 dB).

It is below a quiet room's level and above the noise of 16-bit samples. Models get no silence: Whisper
hallucinates words in it.
"""

_FRAME_SECONDS = 0.02
_PAUSE_SECONDS = 0.2  # Shortest pause in which a window may be cut
_PAUSE_LEVEL = 0.1  # Loudness of a pause, relative to the window's median
_SEARCHED_SECONDS = 5.0
"""Length of a full window's end that is searched for a pause.

A model pads a shorter window with silence. In windows of 21 to 25 s Whisper wrote passages of the text before
again, instead of what was said.
"""
_LONG_SILENCE_SECONDS = 2.0  # Length in seconds of a silence that ends a window, or is skipped before one
_KEPT_SECONDS = 0.5  # Seconds that are kept of a long silence


@attrs.frozen(eq=False)
class Window:
    """One input window of a model. `start`: start in samples from the beginning of the recording; `is_last`:
    True if nothing follows.
    """

    samples: Samples
    start: int
    is_last: bool


class WindowBuffer:
    """A buffer of the samples that the next window may need. `rate`: sample rate in Hz; `seconds`: longest
    window in seconds.
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


log = get_logger()

AHEAD_SECONDS = 32.0
_BLOCK_SECONDS = 0.5
_TURN_PIECES = 256  # Packets after which a turn ends even if they filled no block


class RecordingReader:
    """Decodes a recording on the decoder threads; a hung decoder affects only this recording.

    Args:
        rate: Target sample rate in Hz.
        ahead: Seconds of audio decoded ahead of the reader.
        client: The client's name; clients share the decoders fairly.

    Attributes:
        facts: The container's metadata, set when it is opened: before the first samples.

    Raises:
        ProblemError (503): too many decoders hang.
    """

    def __init__(
        self,
        source: Path | bytes,
        rate: int,
        param: str = "file",
        ahead: float = AHEAD_SECONDS,
        client: str = "",
    ) -> None:
        if DECODERS.hung() >= decoders.MAX_STALLED:
            detail = "Decoding earlier recordings has not ended; others are decoded once it has."
            raise ProblemError(Problem(503, "decoders_hung", detail, retry_after=30))
        self.client = client
        self.facts: AudioFacts | None = None
        self._param = param
        self._ahead = round(ahead / _BLOCK_SECONDS)
        self._blocks: Queue[Samples | ProblemError | AudioFacts | None] = Queue()
        self._closed = threading.Event()
        self._begun = self._decoded = False
        self._turns = self._decode(source, rate)
        DECODERS.add(self)

    @property
    def is_open(self) -> bool:
        """True while the recording's file is open in a decoder: from the first decoded block to the last."""
        return self._begun and not self._decoded

    @property
    def wants_decoding(self) -> bool:
        return not self._decoded and self._blocks.qsize() < self._ahead

    def read(self, seconds: float) -> Samples | None:
        """Return the next samples, an empty array if none arrive within `seconds`, or None at the end. Raises
        ProblemError (400): it cannot be decoded.
        """
        try:
            item = self._blocks.get(timeout=seconds) if seconds else self._blocks.get_nowait()
        except Empty:
            if DECODERS.is_silent(self):
                self._give_up()
            item = np.zeros(0, np.float32)
        DECODERS.wake()
        if isinstance(item, ProblemError):
            raise item
        if isinstance(item, AudioFacts):
            self.facts = item
            return np.zeros(0, np.float32)
        return item

    def close(self) -> None:
        self._closed.set()
        DECODERS.remove(self)

    def decode_on(self) -> float:
        """Decode until a turn may end; return its cost, in samples of all channels."""
        self._begun = True
        try:
            return next(self._turns)
        except StopIteration:
            self._decoded = True
            return 1.0

    def end(self) -> None:
        """Close the file; called while no thread decodes it."""
        self._turns.close()

    def _give_up(self) -> None:
        self.close()
        seconds = decoders.STALL_SECONDS
        raise invalid(f"Decoding the file took longer than {seconds:g} seconds.", self._param)

    def _decode(self, source: Path | bytes, rate: int) -> Generator[float, None, None]:
        """Decode a block per turn, and yield its cost."""
        try:
            recording = OpenedRecording(source, rate, self._param)
            try:
                self._blocks.put(recording.facts)
                before = 0
                for _ in self._in_blocks(recording.blocks(), round(rate * _BLOCK_SECONDS)):
                    yield 1.0 + recording.decoded - before
                    before = recording.decoded
            finally:
                recording.close()
            self._blocks.put(None)
        except ProblemError as error:
            self._blocks.put(error)
        except FileNotFoundError:  # The client has disconnected.
            self._blocks.put(invalid("The file is gone.", self._param))
        except Exception:
            log.exception("decoding failed", actor="model")
            self._blocks.put(invalid("The file cannot be decoded.", self._param))

    def _in_blocks(self, pieces: Iterator[Samples], size: int) -> Iterator[None]:
        """Queue blocks of `size` samples, the last perhaps shorter; yield where others may be decoded."""
        held = np.zeros(0, np.float32)
        for count, piece in enumerate(pieces, 1):
            DECODERS.beat(self)
            if self._closed.is_set():
                return
            held = np.concatenate([held, piece]) if len(piece) else held
            whole = len(held) - len(held) % size
            for start in range(0, whole, size):
                self._blocks.put(held[start : start + size].copy())
            held = held[whole:]
            if whole or count % _TURN_PIECES == 0:
                yield
        if len(held):
            self._blocks.put(held)


AT_ONCE = 4
"""Number of recordings decoded at once for all models; further ones wait without blocking other requests."""
_DECODING = ClientSemaphore(AT_ONCE)
_SLICE_SECONDS = 0.02


@attrs.frozen(eq=False)
class DecodedRecording:
    """The samples of a recording or of its beginning."""

    facts: AudioFacts
    samples: Samples = attrs.field(repr=False)


def decode_recording(
    source: Path | bytes, rate: int, most: int, param: str = "file", client: str = ""
) -> PreparationSteps[DecodedRecording]:
    """Decode a recording, or at least the first `most` samples; yields while it decodes.

    Closing the generator stops the decoding.

    Args:
        rate: Target sample rate in Hz.
        client: The client's name; each client has one recording decoded at a time.

    Raises:
        ProblemError (400): it cannot be decoded; 503: too many decoders hang.
    """
    return (yield from _DECODING.run(client, _decode(source, rate, most, param, client)))


def _decode(
    source: Path | bytes, rate: int, most: int, param: str, client: str
) -> PreparationSteps[DecodedRecording]:
    reader = RecordingReader(source, rate, param, client=client)
    try:
        samples = yield from _read(reader, most)
    finally:
        reader.close()
    assert reader.facts is not None, "they come before the samples"
    return DecodedRecording(reader.facts, samples)


def _read(reader: RecordingReader, most: int) -> PreparationSteps[Samples]:
    blocks = [np.zeros(0, np.float32)]
    count = 0
    ends = time.monotonic() + _SLICE_SECONDS
    while count < most and (block := reader.read(_SLICE_SECONDS)) is not None:
        blocks.append(block)
        count += len(block)
        if time.monotonic() >= ends:
            yield PENDING
            ends = time.monotonic() + _SLICE_SECONDS
    return np.concatenate(blocks)
