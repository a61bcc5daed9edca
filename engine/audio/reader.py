"""A recording that is decoded on a thread of its own, no further ahead than somebody wants it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Full, Queue

import numpy as np
import structlog

from greenroom.engine.audio.samples import AudioFacts, OpenedRecording, Samples
from greenroom.schemas.problems import Problem, ProblemError, invalid

log = structlog.get_logger()

STALL_SECONDS = 20.0
"""How long a decoder may work at one packet, or at opening a file, before its recording is given up."""
MAX_STALLED = 4
"""Threads that hang in a decoder, which cannot be ended, before no more recordings are taken."""
AHEAD_SECONDS = 32.0
_BLOCK_SECONDS = 0.5
_POLL = 0.5


class _StalledThreads:
    """Threads that hang in a decoder, and whose recordings were given up or left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: set[RecordingReader] = set()

    def add(self, reader: RecordingReader) -> None:
        with self._lock:
            self._closed.add(reader)

    def count(self) -> int:
        """Return how many threads of readers that nobody needs have given no sign of life for too long."""
        with self._lock:
            self._closed = {reader for reader in self._closed if reader.is_decoding}
            return sum(reader.is_silent for reader in self._closed)


_STALLED = _StalledThreads()


class RecordingReader:
    """Decodes a recording; a decoder that hangs costs this recording and nothing else.

    Args:
        source: Where it lies, or what its file holds.
        rate: Samples a second that are wanted.
        param: What the client calls the file, for errors.
        ahead: Seconds that are decoded before somebody wants them.

    Attributes:
        facts: What its container tells, once it has been opened: before the first samples.

    Raises:
        ProblemError: 503: too many decoders hang.
    """

    def __init__(
        self, source: Path | bytes, rate: int, param: str = "file", ahead: float = AHEAD_SECONDS
    ) -> None:
        if _STALLED.count() >= MAX_STALLED:
            detail = "Decoding earlier recordings has not ended; the server has to be restarted."
            raise ProblemError(Problem(503, "decoders_hung", detail, retry_after=30))
        self.facts: AudioFacts | None = None
        self._param = param
        self._blocks: Queue[Samples | ProblemError | AudioFacts | None] = Queue(round(ahead / _BLOCK_SECONDS))
        self._closed = threading.Event()
        self._beat = time.monotonic()
        self._thread = threading.Thread(
            target=self._decode, args=(source, rate), name="audio-decoder", daemon=True
        )
        self._thread.start()

    @property
    def is_decoding(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    @property
    def is_silent(self) -> bool:
        """Whether its thread has given no sign of life for as long as a decoder may work at one packet."""
        return time.monotonic() - self._beat > STALL_SECONDS

    def read(self, seconds: float) -> Samples | None:
        """Return the next samples, none if there are none within `seconds`; None at the recording's end.

        Raises:
            ProblemError: 400: it cannot be decoded.
        """
        try:
            item = self._blocks.get(timeout=seconds) if seconds else self._blocks.get_nowait()
        except Empty:
            if self.is_silent:
                self._give_up()
            return np.zeros(0, np.float32)
        if isinstance(item, ProblemError):
            raise item
        if isinstance(item, AudioFacts):
            self.facts = item
            return np.zeros(0, np.float32)
        return item

    def close(self) -> None:
        """Have the thread end; it closes the file."""
        self._closed.set()
        _STALLED.add(self)
        while True:
            try:
                self._blocks.get_nowait()
            except Empty:
                break

    def _give_up(self) -> None:
        self.close()
        raise invalid(f"Decoding the file took longer than {STALL_SECONDS:g} seconds.", self._param)

    def _decode(self, source: Path | bytes, rate: int) -> None:
        try:
            recording = OpenedRecording(source, rate, self._param)
            try:
                self._put(recording.facts)
                for block in self._in_blocks(recording.blocks(), round(rate * _BLOCK_SECONDS)):
                    self._put(block)
            finally:
                recording.close()
            self._put(None)
        except ProblemError as error:
            self._put(error)
        except FileNotFoundError:  # its client has left
            self._put(invalid("The file is gone.", self._param))
        except Exception:
            log.exception("decoding failed", actor="model")
            self._put(invalid("The file cannot be decoded.", self._param))

    def _in_blocks(self, pieces: Iterator[Samples], size: int) -> Iterator[Samples]:
        """Yield blocks of one size, but for the last one, until this is closed."""
        held = np.zeros(0, np.float32)
        for piece in pieces:
            self._beat = time.monotonic()
            if self._closed.is_set():
                return
            held = np.concatenate([held, piece]) if len(piece) else held
            whole = len(held) - len(held) % size
            yield from (held[start : start + size].copy() for start in range(0, whole, size))
            held = held[whole:]
        if len(held):
            yield held

    def _put(self, item: Samples | ProblemError | AudioFacts | None) -> None:
        while not self._closed.is_set():
            self._beat = time.monotonic()
            try:
                self._blocks.put(item, timeout=_POLL)
                return
            except Full:
                continue
