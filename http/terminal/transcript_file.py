"""A recording's transcript in a file or on the terminal, with a progress bar."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from greenroom.http.media.audio.transcript import Transcript, collected_transcript, plain_text
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answers import Ask
from greenroom.http.terminal.output_file import whole_file
from greenroom.http.terminal.standard_streams import try_print
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress
from greenroom.schemas.messages.requests import TranscriptionInput
from greenroom.schemas.problems import internal_error


async def transcribe_to_file(
    ask: Ask, asked: TranscriptionInput, form: str, output: Path | None, console: Console
) -> int:
    """Write the transcript of a recording; return the exit status.

    Args:
        form: Format of the transcript: `text`, `srt`, `vtt` or `json`.
        output: Path of the file, which is replaced at the end; None for standard output.
        console: Console for the progress bar.

    Raises:
        ClickException: The transcription failed, or the file cannot be written.
    """
    if output is None:
        printed = try_print(_formatted(await _transcribe(ask, asked, console), form))
        return ExitStatus.DONE if printed else ExitStatus.FAILED
    with whole_file(output) as file:
        file.write(_formatted(await _transcribe(ask, asked, console), form).encode())
    return ExitStatus.DONE


async def _transcribe(ask: Ask, asked: TranscriptionInput, console: Console) -> Transcript:
    events: list[InferenceEvent] = []
    with _HearingProgress(console) as progress:
        async with ask(asked) as heard:
            async for event in heard:
                progress.show(event)
                match event:
                    case Failed(problem):
                        raise click.ClickException(problem.detail)
                    case Finished(usage=usage):
                        return collected_transcript(asked.task, events, usage)
                events.append(event)
    raise click.ClickException(internal_error().detail)


def _formatted(transcript: Transcript, form: str) -> str:
    if form != "json":
        return plain_text(transcript, form)
    recording = transcript.recording
    document = {
        "task": transcript.task,
        "language": recording.language,
        "duration": recording.duration,
        "text": transcript.text,
        "segments": [attrs.asdict(segment) for segment in transcript.segments],
    }
    return f"{json.dumps(document, ensure_ascii=False, indent=2)}\n"


class _HearingProgress(Progress):
    """A progress bar in seconds of the recording; hidden if the console is not a terminal."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} s"),
            TimeRemainingColumn(),
        )
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self.add_task("loading", total=None)

    def show(self, event: InferenceEvent) -> None:
        """Update the progress bar."""
        if isinstance(event, PromptProgress):
            self.update(
                self._bar, description="listening", completed=event.processed, total=event.total or None
            )
