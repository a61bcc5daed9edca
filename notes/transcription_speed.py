"""Speed of transcription beside mlx-audio's own `generate`, and the memory that long recordings take.

    python notes/transcription_speed.py ratio MODEL [SECONDS] [ROUNDS]
    python notes/transcription_speed.py long MODEL HOURS silence|noise

`ratio` interleaves both sides in one process, over the same file; `long` states the peak of the process, and
what of it was there before the recording.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import wave
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from greenroom.engine.catalog.kinds.detection import detect
from greenroom.engine.loading.libraries import import_model_code, import_text_libraries
from greenroom.engine.memory.model_load import ModelLoad
from greenroom.engine.sound.transcription.open_transcription_engine import open_transcription_engine
from greenroom.engine.sound.transcription.preparing.transcription_adapter import make_transcription_adapter
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.messages.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings

RATE = 16_000


def write_recording(path: Path, seconds: float, level: float) -> None:
    """Write noise of that level, 16 bits, a minute at a time."""
    random = np.random.default_rng(0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        left = round(seconds * RATE)
        while left:
            size = min(left, 60 * RATE)
            file.writeframes((random.standard_normal(size) * level * 32767).astype("<i2").tobytes())
            left -= size


class Transcriber:
    """An engine on this thread, which is given one recording at a time."""

    def __init__(self, folder: Path) -> None:
        import_text_libraries()
        record = detect(folder)
        self._adapter = make_transcription_adapter("model", folder, record)
        self._engine = open_transcription_engine(ModelLoad(folder, record, Settings()))

    def transcribe(self, file: Path, **asked: Any) -> Finished:
        """Transcribe a recording and return its last event; `longest_step` keeps the longest step."""
        request = InferenceRequest("r", ModelKey("model"), TranscriptionInput(str(file), **asked))
        self._engine.submit(request, self._adapter.prepare_input(request))
        self.longest_step = 0.0
        while True:
            began = time.perf_counter()
            events = self._engine.step()
            self.longest_step = max(self.longest_step, time.perf_counter() - began)
            for _, event in events:
                if isinstance(event, Failed):
                    raise SystemExit(event.problem.detail)
                if isinstance(event, Finished):
                    return event


def ratio(folder: Path, seconds: float, rounds: int) -> None:
    """Print the seconds of both sides and the median of their ratios; above 1, this engine is faster."""
    ours = Transcriber(folder)
    theirs = import_model_code("mlx_audio.stt.utils").load_model(folder, model_type="whisper")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "recording.wav"
        write_recording(path, seconds, 0.1)
        for words in (False, True):
            times: list[tuple[float, float]] = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                theirs.generate(str(path), word_timestamps=words)
                between = time.perf_counter()
                ours.transcribe(path, word_timestamps=words)
                times.append((between - began, time.perf_counter() - between))
            measured = times[1:]
            found = sorted(one / other for one, other in measured)
            print(
                f"words={words}: mlx-audio {median(t[0] for t in measured):.2f} s, "
                f"here {median(t[1] for t in measured):.2f} s for {seconds:g} s; "
                f"ratio {median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f}); "
                f"longest step {ours.longest_step * 1000:.0f} ms"
            )


def long(folder: Path, hours: float, kind: str) -> None:
    """Print seconds, tokens and memory of a long recording."""
    transcriber = Transcriber(folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "recording.wav"
        write_recording(path, 65, 0.1)
        transcriber.transcribe(path)
        before = peak()
        write_recording(path, hours * 3600, 0.0 if kind == "silence" else 0.1)
        began = time.perf_counter()
        finished = transcriber.transcribe(path)
        seconds = time.perf_counter() - began
    print(
        f"{hours:g} h of {kind}: {seconds:.1f} s, {finished.usage.heard:.0f} s heard, "
        f"{finished.usage.generated} tokens; peak {peak():.0f} MB, {peak() - before:.0f} MB of it above a "
        f"recording of 65 s; longest step {transcriber.longest_step * 1000:.0f} ms"
    )


def peak() -> float:
    """Return the largest memory that this process has had, in MB."""
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ratio", model, *rest]:
            ratio(Path(model), float(rest[0]) if rest else 30.0, int(rest[1]) if len(rest) > 1 else 5)
        case ["long", model, hours, kind]:
            long(Path(model), float(hours), kind)
        case _:
            print(__doc__)
