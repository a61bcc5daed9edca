"""A recording's transcript in a file or on the terminal, with a bar that shows how far it is heard."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from greenroom.actors.generation import Generation
from greenroom.actors.system import open_system
from greenroom.http.audio.transcript import Transcript, collected_transcript, plain_text
from greenroom.schemas.events import Failed, Finished, InferenceEvent, PromptProgress
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, internal_error
from greenroom.schemas.requests import InferenceRequest, TranscriptionInput
from greenroom.schemas.settings import Settings


async def transcribe_to_file(
    settings: Settings, asked: TranscriptionInput, form: str, output: Path | None, console: Console
) -> int:
    """Write what is said in a recording; return the exit status.

    Args:
        form: `text`, `srt`, `vtt` or `json`.
        output: None is standard output.
        console: Of the progress bar.
    """
    found = await _transcribe(settings, asked, console)
    if isinstance(found, Problem):
        print(f"greenroom: {found.detail}", file=sys.stderr)
        return 1
    return _write(_formatted(found, form), output)


async def _transcribe(
    settings: Settings, asked: TranscriptionInput, console: Console
) -> Transcript | Problem:
    request = InferenceRequest(uuid.uuid4().hex, ModelKey("default"), asked)
    events: list[InferenceEvent] = []
    with _HearingProgress(console) as progress:
        async with open_system(settings) as system:
            with Generation(system.pool, request) as generation:
                async for event in generation:
                    progress.show(event)
                    match event:
                        case Failed(problem):
                            return problem
                        case Finished(usage=usage):
                            return collected_transcript(asked.task, events, usage)
                    events.append(event)
    return internal_error()


def _write(text: str, output: Path | None) -> int:
    try:
        if output is None:
            click.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"greenroom: {output}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


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


class _HearingProgress:
    """A bar of the recording's seconds; nothing where the terminal is none."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} s"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("loading", total=None)

    def __enter__(self) -> _HearingProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, event: InferenceEvent) -> None:
        """Show how far the recording is heard."""
        if isinstance(event, PromptProgress):
            self._progress.update(
                self._task, description="listening", completed=event.processed, total=event.total or None
            )
