"""The command `greenroom speak`: text to an audio file."""

from __future__ import annotations

from pathlib import Path

import click

from greenroom.http.commands.command_server import server_of_command
from greenroom.http.commands.local_models import LocalModels, model_option
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.joining import server_options
from greenroom.http.terminal.streams import RECORDING, UTF8_TEXT, NumberRange
from greenroom.schemas.settings.settings import Settings

FORMS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_EXTENSIONS = {"ogg": "opus", "oga": "opus", "raw": "pcm"}

FLAGS = ("device", "trust_remote_code")


@click.command()
@click.argument("text", type=UTF8_TEXT)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    required=True,
    help="Output file; its extension chooses the format. - is standard output.",
)
@model_option
@click.option("--format", "form", type=click.Choice(FORMS), help="Audio format, whatever the extension.")
@click.option("--voice", type=UTF8_TEXT, help="One of the model's voices.")
@click.option(
    "--speed", type=NumberRange(0.25, 4), default=1.0, help="Speed of the speech; 1 is the model's own."
)
@click.option(
    "--instructions",
    type=UTF8_TEXT,
    default="",
    help="Description of the way to speak, for models that take instructions.",
)
@click.option(
    "--language", type=UTF8_TEXT, help="Language of the text (en, en-GB, ja, …), for models that take one."
)
@click.option("--ref-audio", type=RECORDING, help="Recording of the voice to imitate.")
@click.option("--ref-text", type=UTF8_TEXT, help="Transcript of that recording.")
@server_options
@settings_options(*FLAGS)
@click.pass_obj
def command(
    local: LocalModels,
    settings: Settings,
    text: str,
    output: Path,
    model: str | None,
    form: str | None,
    voice: str | None,
    speed: float,
    instructions: str,
    language: str | None,
    ref_audio: Path | None,
    ref_text: str | None,
    url: str | None,
    stays_local: bool,
) -> None:
    """Speak TEXT into a file. With - as TEXT, stdin is the text.

    \b
    Examples:
      greenroom speak "Good morning." -o morning.mp3 -m ~/models/pocket-tts
      greenroom speak - -o book.opus --voice af_heart -m mlx-community/Kokoro-82M-bf16 < chapter.txt
    """
    form = form or _form_of(output)

    server = server_of_command(local, settings, model, ("speech",), url, stays_local=stays_local)

    from rich.console import Console

    from greenroom.http.terminal.answer_files import speak_to_file
    from greenroom.http.terminal.streams import read_text
    from greenroom.schemas.messages.requests import SpeechInput

    speech = SpeechInput(
        read_text() if text == "-" else text,
        voice=voice,
        speed=speed,
        instructions=instructions,
        language=language,
        reference=None if ref_audio is None else str(ref_audio),
        reference_text=ref_text,
    )
    console = Console(stderr=True)
    server.run(lambda chosen: speak_to_file(chosen, speech, form, output, console))


def _form_of(output: Path) -> str:
    extension = output.suffix.removeprefix(".").lower()
    form = _EXTENSIONS.get(extension, extension)
    if form not in FORMS:
        raise click.UsageError(
            f"'{output.name}' has no extension of an audio format: end it in .{', .'.join(FORMS)}, or use "
            "--format"
        )
    return form
