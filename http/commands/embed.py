"""The command `greenroom embed`: embeddings of texts as lines of JSON."""

from __future__ import annotations

import click

from greenroom.http.commands.command_server import server_of_command
from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.joining import server_options
from greenroom.http.terminal.streams import MODEL, UTF8_TEXT
from greenroom.schemas.settings.settings import Settings

FLAGS = ("device", "dtype", "max_context", "memory_bytes", "trust_remote_code")


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
@settings_options(*FLAGS)
@click.pass_obj
def command(
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

    MODEL is a local folder or a hub id. Lines are read, embedded and printed as they come, so that there
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

    console = Console(stderr=True)
    server.run(lambda chosen: embed_lines(chosen, asked, lines_of(texts), console))
