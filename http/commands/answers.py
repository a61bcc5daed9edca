"""The commands that ask a server one thing: `greenroom embed`, `rerank`, `speak` and `transcribe`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from greenroom.http.commands.command_server import server_of_command
from greenroom.http.commands.local_models import LocalModels, model_option
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.running_server import server_options
from greenroom.http.terminal.streams import MODEL, RECORDING, UTF8_TEXT, NumberRange
from greenroom.schemas.settings.settings import Settings

ENCODER_FLAGS = ("device", "dtype", "max_context", "memory_bytes", "trust_remote_code")
SOUND_FLAGS = ("device", "trust_remote_code")
FORMS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_EXTENSIONS = {"ogg": "opus", "oga": "opus", "raw": "pcm"}
FORMATS = ("text", "srt", "vtt", "json")


@click.command()
@click.argument("model", type=MODEL)
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...", type=UTF8_TEXT)
@click.option("--dimensions", type=click.IntRange(min=1), help="Shorten each vector to this many numbers.")
@click.option(
    "--input-type",
    type=UTF8_TEXT,
    help="Purpose of the texts: query, document, or the name of a prompt of the model.",
)
@click.option(
    "--instruction", type=UTF8_TEXT, help="Description of the task, for models that take instructions."
)
@click.option("--truncate", is_flag=True, help="Truncate texts that are too long.")
@server_options
@settings_options(*ENCODER_FLAGS)
@click.pass_obj
def embed(
    local: LocalModels,
    settings: Settings,
    model: str,
    texts: tuple[str, ...],
    dimensions: int | None,
    input_type: str | None,
    instruction: str | None,
    truncate: bool,
    url: str | None,
    stays_local: bool,
) -> None:
    """Print the vectors of texts, each as a line of JSON. With - as TEXT, each line of stdin is a text.

    MODEL is a local folder or a hub id. Lines are read, embedded and printed 1,024 at a time, so that there
    may be any number of them; empty ones are left out, but counted by `index`.

    \b
    Examples:
      greenroom embed ~/models/all-MiniLM-L6-v2 "The sea is calm" "It rains"
      greenroom embed ~/models/Qwen3-Embedding-0.6B --input-type query "Where is it calm?"
      greenroom embed ~/models/multilingual-e5-small --input-type passage - < lines.txt > vectors.jsonl
    """
    if "-" in texts and len(texts) > 1:
        raise click.UsageError("- reads one text per line from stdin; no other TEXT can stand beside it")

    from greenroom.http.answering.request_parameters import checked_embedding
    from greenroom.schemas.messages.requests import EmbeddingInput
    from greenroom.schemas.problems import ProblemError

    try:
        asked = checked_embedding(EmbeddingInput(texts, dimensions, input_type, instruction, truncate))
    except ProblemError as error:
        raise click.UsageError(error.problem.detail) from error
    server = server_of_command(
        local, settings, model, ("embeddings",), url, stays_local=stays_local, place="MODEL"
    )

    from rich.console import Console

    from greenroom.http.terminal.answer_lines import embed_lines, lines_of

    server.run(lambda chosen: embed_lines(chosen, asked, lines_of(texts), Console(stderr=True)))


@click.command()
@click.argument("query", type=UTF8_TEXT)
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...", type=UTF8_TEXT)
@model_option
@click.option("-n", "--top", type=click.IntRange(min=1), help="Number of documents to print (default: all).")
@click.option(
    "--instruction", type=UTF8_TEXT, help="Criterion of relevance, for models that take instructions."
)
@server_options
@settings_options(*ENCODER_FLAGS)
@click.pass_obj
def rerank(
    local: LocalModels,
    settings: Settings,
    query: str,
    documents: tuple[str, ...],
    model: str | None,
    top: int | None,
    instruction: str | None,
    url: str | None,
    stays_local: bool,
) -> None:
    """Rank documents by how well they answer QUERY, and print each as a line of JSON, best first.

    With - as DOCUMENT, each line of stdin is a document; empty lines are left out but counted by `index`.
    Only the beginning of a document that is too long is read.

    \b
    Examples:
      greenroom rerank -m ~/models/bge-reranker-v2-m3 "Who walks?" "He walks." "It rains."
      greenroom rerank -m ~/models/Qwen3-Reranker-0.6B --top 10 "How is a slice made?" - < lines.txt
    """
    if "-" in documents and len(documents) > 1:
        raise click.UsageError(
            "- reads one document per line from stdin; no other DOCUMENT can stand beside it"
        )

    server = server_of_command(local, settings, model, ("rerank",), url, stays_local=stays_local)

    from rich.console import Console

    from greenroom.http.terminal.answer_lines import lines_of, rank_lines

    server.run(
        lambda chosen: rank_lines(chosen, query, instruction, lines_of(documents), top, Console(stderr=True))
    )


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
@settings_options(*SOUND_FLAGS)
@click.pass_obj
def speak(
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
    server.run(lambda chosen: speak_to_file(chosen, speech, form, output, Console(stderr=True)))


def _form_of(output: Path) -> str:
    extension = output.suffix.removeprefix(".").lower()
    form = _EXTENSIONS.get(extension, extension)
    if form not in FORMS:
        raise click.UsageError(
            f"'{output.name}' has no extension of an audio format: end it in .{', .'.join(FORMS)}, or use "
            "--format"
        )
    return form


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
@settings_options(*SOUND_FLAGS)
@click.pass_obj
def transcribe(
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
    form = form or (extension if extension in FORMATS else "text")
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
    server.run(lambda chosen: transcribe_to_file(chosen, asked, form, written, Console(stderr=True)))
