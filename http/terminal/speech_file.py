"""Speech written to a file while it is generated, with a progress bar."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from greenroom.http.media.audio.audio_encoder import AudioEncoder, complete_wav_header
from greenroom.http.media.audio.audio_formats import AUDIO_FORMATS
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.http.terminal.output_file import whole_file
from greenroom.http.terminal.server_answers import ServerAnswers, given, open_answers, progress_of
from greenroom.schemas.events.events import PromptProgress
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import SpeechInput

_RATE_AT, _HEADER_BYTES = 24, 44
"""Place of the sample rate in the header of a WAV file, and the header's length."""


async def speak_to_file(
    server: ChosenServer, speech: SpeechInput, form: str, output: Path, console: Console
) -> int:
    """Write the speech of a text to a file; return the exit status. An existing file is replaced at the end.

    Args:
        form: Name of an audio format, one of `AUDIO_FORMATS`.
        console: Console for the progress bar.

    Raises:
        ClickException: The speech failed, or the file cannot be written.
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
    header, rate, ended = b"", 0, False
    async with aclosing(answers.stream("/v1/audio/speech", json=await _body(answers, speech))) as documents:
        async for document in documents:
            ended = ended or document.get("type") == "speech.audio.done"
            if (progress := progress_of(document)) is not None:
                yield progress
            try:
                samples = base64.b64decode(document.get("audio", ""), validate=True)
            except (ValueError, TypeError) as error:
                raise answers.unreadable() from error
            if not rate:
                header += samples
                if len(header) < _HEADER_BYTES:
                    continue
                (rate,) = struct.unpack_from("<I", header, _RATE_AT)
                samples = header[_HEADER_BYTES:]
            if samples:
                yield AudioChunk(samples, rate)
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
        """Update the progress bar."""
        match event:
            case AudioChunk(samples, rate):
                self._seconds += len(samples) / 2 / rate
                self.update(self._bar, description="speaking", seconds=self._seconds)
            case PromptProgress(processed, total):
                self.update(self._bar, completed=processed, total=total)
