"""Decode recordings on one or two threads, however many are open."""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

from greenroom.engine.media.audio.decoder_turns import Decodable, DecoderTurns

STALL_SECONDS = 20.0
"""How long a decoder may work at one packet, or at opening a file, before its recording is given up."""
MAX_STALLED = 4
"""Threads that hang in a decoder, which cannot be ended, before no more recordings are taken."""
PATIENCE = 5.0
"""Seconds without a sign of life after which another recording is decoded beside the one that hangs."""
_CORES_EACH = 4
AT_ONCE = max(1, min(2, (os.cpu_count() or 1) // _CORES_EACH))
"""Recordings that are decoded at the same time: even one thread is faster than any model listens."""


class Decoding(Decodable, Protocol):
    """A recording that these threads decode."""

    def decode_on(self) -> float:
        """Decode a bit; return its cost, in samples of all channels."""

    def end(self) -> None:
        """Close the file."""


class DecoderThreads:
    """Threads that begin when there is something to decode, and end when there is not.

    Args:
        at_once: How many work at the same time, beside those that hang.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._lock = threading.Lock()
        self._turns: DecoderTurns[Decoding] = DecoderTurns(at_once, time.monotonic)

    def __len__(self) -> int:
        """Return how many recordings are open."""
        with self._lock:
            return len(self._turns)

    def add(self, client: str, recording: Decoding) -> None:
        """Take a recording."""
        with self._lock:
            self._turns.add(client, recording)
        self.wake()

    def wake(self) -> None:
        """Have recordings decoded that want it, as far as threads may work."""
        while (recording := self._start()) is not None:
            threading.Thread(target=self._work, args=(recording,), name="audio-decoder", daemon=True).start()

    def remove(self, recording: Decoding) -> None:
        """Let go of a recording; its file is closed, at the latest behind the packet that is decoded now."""
        with self._lock:
            is_free = self._turns.remove(recording)
        if is_free:
            recording.end()

    def beat(self, recording: Decoding) -> None:
        """Note a sign of life from the thread that decodes a recording."""
        with self._lock:
            self._turns.beat(recording)

    def is_silent(self, recording: Decoding) -> bool:
        """Return whether its decoder has worked at one packet for too long."""
        with self._lock:
            return self._turns.is_silent(recording, STALL_SECONDS)

    def hung(self) -> int:
        """Return how many threads hang in recordings that nobody wants."""
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
"""Those of this process."""
