"""Audio decoders that hang, which no file can cause."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenroom.engine.media import recording_windows, recordings
from greenroom.engine.media.recordings import Samples
from greenroom.tests.support.media.recordings import silence
from greenroom.tests.support.servers.bounded_waits import PATIENCE


@contextmanager
def hanging_decoders() -> Iterator[None]:
    """Make the decoding of recordings hang once their metadata is read, until the context ends."""
    released = threading.Event()

    class Hanging:
        facts = recordings.AudioFacts(1.0, "wav", "pcm_s16le")
        decoded = 0

        def __init__(self, source: Path | bytes, rate: int, param: str) -> None:
            """Open nothing."""

        def blocks(self) -> Iterator[Samples]:
            released.wait()
            yield silence(1)

        def close(self) -> None:
            """Close nothing."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_windows, "OpenedRecording", Hanging)
        try:
            yield
        finally:
            hung = decoding_threads()
            released.set()
            for thread in hung:
                thread.join(PATIENCE)


def decoding_threads() -> list[threading.Thread]:
    """Return the threads that decode recordings."""
    return [thread for thread in threading.enumerate() if thread.name == "audio-decoder"]
