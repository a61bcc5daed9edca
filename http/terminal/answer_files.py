"""Files that commands write: speech while it is generated, and transcripts."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from greenroom.http.media.audio_encoder import AUDIO_FORMATS, AudioEncoder, complete_wav_header
from greenroom.http.media.transcripts import Task, Transcript, language_code, plain_text
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.answer_lines import ServerAnswers, given, open_answers, progress_of
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.http.terminal.streams import try_print, whole_file
from greenroom.schemas.events.events import PromptProgress, Usage
from greenroom.schemas.events.result_events import AudioChunk, Recording, Segment, Word
from greenroom.schemas.messages.requests import SpeechInput, TranscriptionInput

_RATE_AT, _HEADER_BYTES = 24, 44
"""Place of the sample rate in the header of a WAV file, and the header's length."""


async def speak_to_file(
    server: ChosenServer, speech: SpeechInput, form: str, output: Path, console: Console
) -> int:
    """Write the speech of a text to a file; return the exit status. An existing file is replaced at the end.
    Raises ClickException: the speech failed, or the file cannot be written.
    """
    encoder = AudioEncoder(AUDIO_FORMATS[form])
    with whole_file(output) as file, _SpeechProgress(console) as progress:
        async with open_answers(server) as answers, aclosing(_spoken(answers, speech)) as events:
            async for event in events:
                progress.show(event)
                if isinstance(event, AudioChunk):
                    file.write(await trio.to_thread.run_sync(encoder.encode, event.samples, event.rate))
        file.write(encoder.finish())
        if form == "wav" and file.seekable():
            complete_wav_header(file)
    return ExitStatus.DONE


async def _spoken(answers: ServerAnswers, speech: SpeechInput) -> AsyncGenerator[AudioChunk | PromptProgress]:
    """Yield the samples of a text's speech as they arrive, and how much of the text is spoken."""
    waiting, rate, ended = b"", 0, False  # bytes that are not a whole header or sample yet
    async with aclosing(answers.stream("/v1/audio/speech", json=await _body(answers, speech))) as documents:
        async for document in documents:
            ended = ended or document.get("type") == "speech.audio.done"
            if (progress := progress_of(document)) is not None:
                yield progress
            try:
                waiting += base64.b64decode(document.get("audio", ""), validate=True)
            except (ValueError, TypeError) as error:
                raise answers.unreadable() from error
            if not rate:
                if len(waiting) < _HEADER_BYTES:
                    continue
                (rate,) = struct.unpack_from("<I", waiting, _RATE_AT)
                waiting = waiting[_HEADER_BYTES:]
            if rate and (whole := len(waiting) // 2 * 2):
                yield AudioChunk(waiting[:whole], rate)
                waiting = waiting[whole:]
    if not ended:
        raise answers.unreadable()


async def _body(answers: ServerAnswers, speech: SpeechInput) -> dict[str, Any]:
    try:
        reference = None if speech.reference is None else await trio.Path(speech.reference).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{speech.reference}: {error.strerror or error}") from error
    return {
        "model": answers.server.model,
        "input": speech.text,
        # Samples as they are: this process encodes them in the format of the file.
        "response_format": "wav",
        "stream_format": "sse",
        "speed": speech.speed,
        **({"instructions": speech.instructions} if speech.instructions else {}),
        **given(voice=speech.voice, language=speech.language, ref_text=speech.reference_text),
        **({} if reference is None else {"ref_audio": base64.b64encode(reference).decode()}),
    }


class _SpeechProgress(Progress):
    """A progress bar of the text with the seconds of speech; hidden if the console is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._seconds = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[seconds]:.1f} s"))
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self.add_task("loading", total=None, seconds=0.0)

    def show(self, event: AudioChunk | PromptProgress) -> None:
        match event:
            case AudioChunk(samples, rate):
                self._seconds += len(samples) / 2 / rate
                self.update(self._bar, description="speaking", seconds=self._seconds)
            case PromptProgress(processed, total):
                self.update(self._bar, completed=processed, total=total)


async def transcribe_to_file(
    server: ChosenServer, asked: TranscriptionInput, form: str, output: Path | None, console: Console
) -> int:
    """Write the transcript of a recording; return the exit status.

    Args:
        form: Format of the transcript: `text`, `srt`, `vtt` or `json`.
        output: Path of the file, which is replaced at the end; None for standard output.

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
        if heard is not None:
            self.update(
                self._bar, description="listening", completed=heard.processed, total=heard.total or None
            )
