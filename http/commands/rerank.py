"""The command `greenroom rerank`: documents ranked by a query, as lines of JSON."""

from __future__ import annotations

import click

from greenroom.http.commands.command_server import server_of_command
from greenroom.http.commands.local_models import LocalModels, model_option
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.joining import server_options
from greenroom.http.terminal.streams import UTF8_TEXT
from greenroom.schemas.settings.settings import Settings

FLAGS = ("device", "dtype", "max_context", "memory_bytes", "trust_remote_code")


@click.command()
@click.argument("query", type=UTF8_TEXT)
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...", type=UTF8_TEXT)
@model_option
@click.option("-n", "--top", type=click.IntRange(min=1), help="Number of documents to print (default: all).")
@click.option(
    "--instruction", type=UTF8_TEXT, help="Criterion of relevance, for models that take instructions."
)
@server_options
@settings_options(*FLAGS)
@click.pass_obj
def command(
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

    console = Console(stderr=True)
    server.run(lambda chosen: rank_lines(chosen, query, instruction, lines_of(documents), top, console))
