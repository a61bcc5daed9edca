"""Threads that decode recordings: one or two, however many recordings are open."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Set
from typing import Generic, Protocol, TypeVar

from greenroom.engine.resources.fair_queue import ClientRequest, FairQueue

OPEN_AT_ONCE = 8
"""Limit of recordings with an open decoder, whose buffers may take 13 MB; others wait until one ends."""
MOST_OPEN = 32
"""Limit of open decoders. Beyond `OPEN_AT_ONCE`, only a client without an open decoder gets one."""
UNMOVED_SECONDS = 5.0
"""Seconds in which nothing is decoded, since no output is read, after which one more recording is opened."""


class Decodable(ClientRequest, Protocol):
    """A recording that is decoded block by block."""

    @property
    def is_open(self) -> bool:
        """True if the recording has a decoder: from its first turn to its end."""

    @property
    def wants_decoding(self) -> bool:
        """True if there is more to decode, and space in its buffer."""


T = TypeVar("T", bound=Decodable)


class DecoderTurns(Generic[T]):
    """A scheduler that bounds concurrent decoding and gives clients equal shares of it.

    Silent audio costs as much as any. Recordings are opened in fair order too, within a limit of open
    decoders.

    Args:
        at_once: Number of recordings decoded at the same time.
        clock: Clock in seconds, of any origin.
    """

    def __init__(self, at_once: int, clock: Callable[[], float]) -> None:
        self._at_once = at_once
        self._clock = clock
        self._turns: FairQueue[T] = FairQueue()
        self._beats: dict[T, float] = {}
        self._moved = clock()

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, recording: T) -> None:
        """Add a recording behind those of its client."""
        self._turns.add(recording)

    def remove(self, recording: T) -> bool:
        """Remove a recording; return whether no thread is decoding it."""
        self._turns.remove(recording)
        return recording not in self._beats

    def start(self, patience: float) -> T | None:
        """Return the recording to decode now; None if none needs it, or the limit is reached. `patience`:
        seconds without a heartbeat after which a decoder counts as hung, and another may work in its place.
        """
        if len(self._beats) - self._silent(self._beats, patience) >= self._at_once:
            return None
        if not len(self._turns):
            return None
        opened = {each for each in self._turns if each.is_open or each in self._beats}
        waiting = (each for each in self._turns.in_turn() if each not in self._beats and each.wants_decoding)
        recording = next((each for each in waiting if each in opened or self._may_open(each, opened)), None)
        if recording is not None:
            self.beat(recording)
            self._moved = self._clock()
        return recording

    def beat(self, recording: T) -> None:
        """Record a heartbeat of the thread that decodes a recording."""
        self._beats[recording] = self._clock()

    def stop(self, recording: T, cost: float) -> bool:
        """End a recording's turn; return whether it is still wanted. `cost`: number of samples decoded,
        summed over channels.
        """
        del self._beats[recording]
        wanted = recording in set(self._turns)
        if wanted:
            self._turns.charge([recording], cost)
        return wanted

    def is_silent(self, recording: T, seconds: float) -> bool:
        """Return whether a recording's decoder has given no heartbeat for more than `seconds`."""
        return bool(self._silent({recording} & self._beats.keys(), seconds))

    def hung(self, seconds: float) -> int:
        """Return the number of decoders of removed recordings without a heartbeat for more than `seconds`."""
        return self._silent(self._beats.keys() - set(self._turns), seconds)

    def _may_open(self, recording: T, opened: Set[T]) -> bool:
        if len(opened) < OPEN_AT_ONCE:
            return True
        if len(opened) < MOST_OPEN and all(each.client != recording.client for each in opened):
            return True
        # Avoids a deadlock: readers of the open recordings may be waiting for this one.
        return not self._beats and self._clock() - self._moved > UNMOVED_SECONDS

    def _silent(self, recordings: Iterable[T], seconds: float) -> int:
        now = self._clock()
        return sum(now - self._beats[each] > seconds for each in recordings)


STALL_SECONDS = 20.0
"""Time limit in seconds for one packet, or for opening a file, before the recording fails."""
MAX_STALLED = 4
"""Number of hung decoder threads, which cannot be killed, at which new recordings are rejected."""
PATIENCE = 5.0  # Seconds without a heartbeat after which another recording is decoded beside the hung one
_CORES_EACH = 4
THREADS_AT_ONCE = max(1, min(2, (os.cpu_count() or 1) // _CORES_EACH))
"""Number of recordings decoded at the same time: even one thread outpaces any model."""


class Decoding(Decodable, Protocol):
    def decode_on(self) -> float:
        """Decode a block; return its cost, in samples of all channels."""

    def end(self) -> None:
        """Close the file."""


class DecoderThreads:
    """Decoder threads that start when there is something to decode, and end when there is not. `at_once`:
    number of working threads, not counting hung ones.
    """

    def __init__(self, at_once: int = THREADS_AT_ONCE) -> None:
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


DECODERS = DecoderThreads()  # The decoder threads of this process
