"""Threads that decode recordings: one or two, however many recordings are open."""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

from greenroom.engine.media.audio.decoder_turns import Decodable, DecoderTurns

STALL_SECONDS = 20.0
"""Time limit in seconds for one packet, or for opening a file, before the recording fails."""
MAX_STALLED = 4
"""Number of hung decoder threads, which cannot be killed, at which new recordings are rejected."""
PATIENCE = 5.0
"""Seconds without a heartbeat after which another recording is decoded beside the hung one."""
_CORES_EACH = 4
AT_ONCE = max(1, min(2, (os.cpu_count() or 1) // _CORES_EACH))
"""Number of recordings decoded at the same time: even one thread outpaces any model."""


class Decoding(Decodable, Protocol):
    """A recording that these threads decode."""

    def decode_on(self) -> float:
        """Decode a block; return its cost, in samples of all channels."""

    def end(self) -> None:
        """Close the file."""


class DecoderThreads:
    """Decoder threads that start when there is something to decode, and end when there is not.

    Args:
        at_once: Number of working threads, not counting hung ones.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._lock = threading.Lock()
        self._turns: DecoderTurns[Decoding] = DecoderTurns(at_once, time.monotonic)

    def __len__(self) -> int:
        with self._lock:
            return len(self._turns)

    def add(self, recording: Decoding) -> None:
        with self._lock:
            self._turns.add(recording)
        self.wake()

    def wake(self) -> None:
        """Start threads for recordings that need decoding, up to the limit."""
        while (recording := self._start()) is not None:
            threading.Thread(target=self._work, args=(recording,), name="audio-decoder", daemon=True).start()

    def remove(self, recording: Decoding) -> None:
        """Remove a recording; its file is closed now, or when the current packet is decoded."""
        with self._lock:
            is_free = self._turns.remove(recording)
        if is_free:
            recording.end()

    def beat(self, recording: Decoding) -> None:
        """Record a heartbeat of the thread that decodes a recording."""
        with self._lock:
            self._turns.beat(recording)

    def is_silent(self, recording: Decoding) -> bool:
        """Return whether the recording's decoder has exceeded the time limit for one packet."""
        with self._lock:
            return self._turns.is_silent(recording, STALL_SECONDS)

    def hung(self) -> int:
        """Return the number of threads that hang in removed recordings."""
        with self._lock:
            return self._turns.hung(STALL_SECONDS)

    def _start(self) -> Decoding | None:
        with self._lock:
            return self._turns.start(min(PATIENCE, STALL_SECONDS))

    def _work(self, recording: Decoding | None) -> None:
        while recording is not None:
            cost = recording.decode_on()
            with self._lock:
                is_wanted = self._turns.stop(recording, cost)
            if not is_wanted:
                recording.end()
            recording = self._start()


DECODERS = DecoderThreads()
"""The decoder threads of this process."""
