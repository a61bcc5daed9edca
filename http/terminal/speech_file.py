"""Speech written to a file while it is generated, with a bar that shows how far it is."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import BinaryIO

import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from greenroom.actors.generation import Generation
from greenroom.actors.system import open_system
from greenroom.http.audio.audio_encoder import AudioEncoder, complete_wav_header
from greenroom.http.audio.audio_formats import AUDIO_FORMATS
from greenroom.schemas.events import Failed, InferenceEvent, PromptProgress
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import InferenceRequest, SpeechInput
from greenroom.schemas.result_events import AudioChunk
from greenroom.schemas.settings import Settings


async def speak_to_file(
    settings: Settings, speech: SpeechInput, form: str, output: Path, console: Console
) -> int:
    """Write the speech of a text; return the exit status. A file that is there is replaced when it is done.

    Args:
        form: One of `AUDIO_FORMATS`.
        console: Of the progress bar.
    """
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("w+b") as file:
            problem = await _speak(settings, speech, form, file, console)
        if problem is None:
            part.replace(output)
    except OSError as error:
        problem = Problem(500, "not_written", f"{output}: {error.strerror or error}")
    finally:
        part.unlink(missing_ok=True)
    if problem is not None:
        print(f"greenroom: {problem.detail}", file=sys.stderr)
    return 0 if problem is None else 1


async def _speak(
    settings: Settings, speech: SpeechInput, form: str, file: BinaryIO, console: Console
) -> Problem | None:
    encoder = AudioEncoder(AUDIO_FORMATS[form])
    request = InferenceRequest(uuid.uuid4().hex, ModelKey("default"), speech)
    with _SpeechProgress(console) as progress:
        async with open_system(settings) as system:
            with Generation(system.pool, request) as generation:
                async for event in generation:
                    progress.show(event)
                    if isinstance(event, Failed):
                        return event.problem
                    if isinstance(event, AudioChunk):
                        file.write(await trio.to_thread.run_sync(encoder.encode, event.samples, event.rate))
        file.write(encoder.finish())
        if form == "wav":
            complete_wav_header(file)
    return None


class _SpeechProgress:
    """A bar of the text, with the seconds of speech; nothing where the terminal is none."""

    def __init__(self, console: Console) -> None:
        self._seconds = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[seconds]:.1f} s"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("loading", total=None, seconds=0.0)

    def __enter__(self) -> _SpeechProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, event: InferenceEvent) -> None:
        """Show how far the speech is."""
        match event:
            case AudioChunk(samples, rate):
                self._seconds += len(samples) / 2 / rate
                self._progress.update(self._task, description="speaking", seconds=self._seconds)
            case PromptProgress(processed, total):
                self._progress.update(self._task, completed=processed, total=total)
