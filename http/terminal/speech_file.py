"""Speech written to a file while it is generated, with a progress bar."""

from __future__ import annotations

from pathlib import Path

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from greenroom.http.media.audio.audio_encoder import AudioEncoder, complete_wav_header
from greenroom.http.media.audio.audio_formats import AUDIO_FORMATS
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answers import Ask
from greenroom.http.terminal.output_file import whole_file
from greenroom.schemas.events.events import Failed, InferenceEvent, PromptProgress
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import SpeechInput


async def speak_to_file(ask: Ask, speech: SpeechInput, form: str, output: Path, console: Console) -> int:
    """Write the speech of a text to a file; return the exit status. An existing file is replaced at the end.

    Args:
        form: Name of an audio format, one of `AUDIO_FORMATS`.
        console: Console for the progress bar.

    Raises:
        ClickException: The speech failed, or the file cannot be written.
    """
    encoder = AudioEncoder(AUDIO_FORMATS[form])
    with whole_file(output) as file, _SpeechProgress(console) as progress:
        async with ask(speech) as events:
            async for event in events:
                progress.show(event)
                if isinstance(event, Failed):
                    raise click.ClickException(event.problem.detail)
                if isinstance(event, AudioChunk):
                    file.write(await trio.to_thread.run_sync(encoder.encode, event.samples, event.rate))
        file.write(encoder.finish())
        if form == "wav" and file.seekable():
            complete_wav_header(file)
    return ExitStatus.DONE


class _SpeechProgress(Progress):
    """A progress bar of the text with the seconds of speech; hidden if the console is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._seconds = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[seconds]:.1f} s"))
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self.add_task("loading", total=None, seconds=0.0)

    def show(self, event: InferenceEvent) -> None:
        """Update the progress bar."""
        match event:
            case AudioChunk(samples, rate):
                self._seconds += len(samples) / 2 / rate
                self.update(self._bar, description="speaking", seconds=self._seconds)
            case PromptProgress(processed, total):
                self.update(self._bar, completed=processed, total=total)
