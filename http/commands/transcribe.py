"""The command `greenroom transcribe`: a recording to text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from greenroom.http.commands.command_server import server_of_command
from greenroom.http.commands.local_models import LocalModels, model_option
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.joining import server_options
from greenroom.http.terminal.streams import RECORDING, UTF8_TEXT, NumberRange
from greenroom.schemas.settings.settings import Settings

FORMATS = ("text", "srt", "vtt", "json")
_EXTENSIONS = {"srt": "srt", "vtt": "vtt", "json": "json"}

FLAGS = ("device", "trust_remote_code")


@click.command()
@click.argument("file", type=RECORDING)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Output file (default: standard output).",
)
@model_option
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the transcript (default: by the output's extension .srt, .vtt or .json, else text).",
)
@click.option("--language", type=UTF8_TEXT, help="Spoken language (en, de, french, …; default: detected).")
@click.option("--translate", is_flag=True, help="Translate the speech to English.")
@click.option(
    "--prompt",
    type=UTF8_TEXT,
    default="",
    help="Preceding text, or names and words that occur in the recording.",
)
@click.option("--words", is_flag=True, help="Add the time of each word to JSON output.")
@click.option(
    "--temperature",
    type=NumberRange(0, 1),
    help="Sampling temperature (default: 0, and higher where decoding fails).",
)
@server_options
@settings_options(*FLAGS)
@click.pass_obj
def command(
    local: LocalModels,
    settings: Settings,
    file: Path,
    output: Path | None,
    model: str | None,
    form: str | None,
    language: str | None,
    translate: bool,
    prompt: str,
    words: bool,
    temperature: float | None,
    url: str | None,
    stays_local: bool,
) -> None:
    """Transcribe FILE, a recording or a film.

    \b
    Examples:
      greenroom transcribe meeting.m4a -m ~/models/whisper-large-v3-turbo
      greenroom transcribe film.mkv -o film.srt --translate -m ~/models/whisper-large-v3
    """
    extension = "" if output is None else output.suffix.removeprefix(".").lower()
    form = form or _EXTENSIONS.get(extension, "text")
    if words and form != "json":
        raise click.UsageError("--words needs --format json")

    task: Literal["transcribe", "translate"] = "translate" if translate else "transcribe"
    server = server_of_command(local, settings, model, ("transcription",), url, stays_local=stays_local)

    from rich.console import Console

    from greenroom.http.terminal.answer_files import transcribe_to_file
    from greenroom.http.terminal.streams import STDOUT
    from greenroom.schemas.messages.requests import TranscriptionInput

    asked = TranscriptionInput(str(file), task, language, prompt, words, temperature or None)
    written = None if output == STDOUT else output
    console = Console(stderr=True)
    server.run(lambda chosen: transcribe_to_file(chosen, asked, form, written, console))
