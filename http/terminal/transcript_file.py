"""A recording's transcript in a file or on the terminal, with a progress bar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from greenroom.http.media.audio.language_names import language_code
from greenroom.http.media.audio.transcript import Task, Transcript, plain_text
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.http.terminal.output_file import whole_file
from greenroom.http.terminal.server_answers import given, open_answers, progress_of
from greenroom.http.terminal.standard_streams import try_print
from greenroom.schemas.events.events import PromptProgress, Usage
from greenroom.schemas.events.result_events import Recording, Segment, Word
from greenroom.schemas.messages.requests import TranscriptionInput


async def transcribe_to_file(
    server: ChosenServer, asked: TranscriptionInput, form: str, output: Path | None, console: Console
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
        printed = try_print(_formatted(await _transcribe(server, asked, console), form))
        return ExitStatus.DONE if printed else ExitStatus.FAILED
    with whole_file(output) as file:
        file.write(_formatted(await _transcribe(server, asked, console), form).encode())
    return ExitStatus.DONE


async def _transcribe(server: ChosenServer, asked: TranscriptionInput, console: Console) -> Transcript:
    recording = Path(asked.file)
    try:
        file = await trio.to_thread.run_sync(recording.open, "rb")
    except OSError as error:
        raise click.ClickException(f"{recording}: {error.strerror or error}") from error
    fields = {
        "model": server.model,
        "response_format": "verbose_json",
        "prompt": asked.prompt,
        **({"timestamp_granularities[]": ["segment", "word"]} if asked.word_timestamps else {}),
        **given(language=asked.language, temperature=asked.temperature),
    }
    path = f"/v1/audio/{'translations' if asked.task == 'translate' else 'transcriptions'}"
    form: dict[str, Any] = {"data": fields, "files": {"file": (recording.name, file)}}
    read = partial(_transcript, task=asked.task)
    with file, _HearingProgress(console) as progress:
        async with open_answers(server) as answers:
            if not server.drops_oldest:  # another program, whose transcripts come without progress
                return await answers.read(path, read, **form)
            document: Mapping[str, Any] = {}
            fields["stream"] = "true"
            async with aclosing(answers.stream(path, **form)) as documents:
                async for document in documents:
                    progress.show(progress_of(document))
            try:
                return read(document)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise answers.unreadable() from error


def _transcript(document: Mapping[str, Any], task: Task) -> Transcript:
    recording = Recording(document["duration"], language_code(document["language"]))
    segments = tuple(
        Segment(
            segment["text"],
            tokens=tuple(segment["tokens"]),
            words=tuple(
                Word(word["word"], word["start"], word["end"], word["probability"])
                for word in segment.get("words", ())
            ),
            **{name: segment[name] for name in _SEGMENT_NUMBERS},
        )
        for segment in document.get("segments", ())
    )
    return Transcript(task, recording, segments, Usage(0, 0))


_SEGMENT_NUMBERS = (
    "start",
    "end",
    "avg_logprob",
    "compression_ratio",
    "no_speech_prob",
    "temperature",
    "seek",
)


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

    def show(self, heard: PromptProgress | None) -> None:
        """Update the progress bar."""
        if heard is not None:
            self.update(
                self._bar, description="listening", completed=heard.processed, total=heard.total or None
            )
