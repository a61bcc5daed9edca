"""A recording that is decoded only a limited time ahead of its reader."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from queue import Empty, Queue

import numpy as np

from greenroom.engine.media.audio import decoder_threads
from greenroom.engine.media.audio.decoder_threads import DECODERS
from greenroom.engine.media.audio.samples import AudioFacts, OpenedRecording, Samples
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, invalid

log = get_logger()

AHEAD_SECONDS = 32.0
_BLOCK_SECONDS = 0.5
_TURN_PIECES = 256
"""Packets after which a turn ends even if they filled no block."""


class RecordingReader:
    """Decodes a recording on the decoder threads; a hung decoder affects only this recording.

    Args:
        source: Path or content of the file.
        rate: Target sample rate in Hz.
        param: The file's parameter name, for errors.
        ahead: Seconds of audio decoded ahead of the reader.
        client: The client's name; clients share the decoders fairly.

    Attributes:
        facts: The container's metadata, set when it is opened: before the first samples.

    Raises:
        ProblemError: 503: too many decoders hang.
    """

    def __init__(
        self,
        source: Path | bytes,
        rate: int,
        param: str = "file",
        ahead: float = AHEAD_SECONDS,
        client: str = "",
    ) -> None:
        if DECODERS.hung() >= decoder_threads.MAX_STALLED:
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
        """True if there is more to decode, and space in the buffer."""
        return not self._decoded and self._blocks.qsize() < self._ahead

    def read(self, seconds: float) -> Samples | None:
        """Return the next samples, an empty array if none arrive within `seconds`, or None at the end.

        Raises:
            ProblemError: 400: it cannot be decoded.
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
        """Stop the decoding, which closes the file."""
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
        seconds = decoder_threads.STALL_SECONDS
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
