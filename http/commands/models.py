"""The command `greenroom models`: a list of the models on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.joining import listing_server, server_options
from greenroom.http.terminal.option_types import MODEL
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.settings import Settings


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@server_options
@settings_options("model_dir", "trust_remote_code")
@click.pass_obj
def command(
    local: LocalModels,
    settings: Settings,
    models: tuple[str, ...],
    as_json: bool,
    url: str | None,
    stays_local: bool,
) -> None:
    """List the models that requests can name.

    If a server runs on this machine, these are its models, with their states. Without one, with --local, or
    with MODEL, they are those of a server with these settings: those that are named (here or in the settings
    file) come first, in that order, then the complete models of `model_dir` and of the hub's cache, aliases
    and profiles. With none named, the built-in demo model is the first; the first is also called `default`.
    Nothing is loaded or downloaded. In a pipe each model is a line, with tabs between its name, kind,
    architecture, context, size and folder, or its state in the server.

    \b
    Examples:
      greenroom models
      greenroom models ~/models/Qwen3-4B-4bit --json
    """
    server = None if models and url is None else listing_server(settings, url, stays_local=stays_local)
    if server is None:
        rows = local.describe(attrs.evolve(settings, models=models or settings.models))
    else:
        rows = server.get("/v1/models")["data"]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            click.echo("\t".join(_cells(row)))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a model's name, type, architecture, context, size, and its state, folder or problem."""
    place = row.get("problem") or row["state"] or row["folder"] or "not on this machine"
    context = f"{row['context_length']:,}" if row["context_length"] else ""
    size = size_text(row["size_bytes"]) if row["size_bytes"] else ""
    cells = (row["id"], _kind(row), row["architecture"] or "", context, size, place)
    return tuple("".join(each if each.isprintable() else " " for each in cell) for cell in cells)


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("model", overflow="fold")
    table.add_column("kind")
    table.add_column("architecture")
    table.add_column("context", justify="right")
    table.add_column("size", justify="right")
    of_server = any(row["state"] for row in rows)
    table.add_column("state" if of_server else "folder", overflow="fold")
    for row in rows:
        *cells, place = _cells(row)
        lines = (place.replace(str(Path.home()), "~"), *row.get("notices", ()))
        table.add_row(*map(Text, (*cells, "\n".join(lines))))
    Console().print(table)


def _kind(row: dict[str, Any]) -> str:
    """Return a model's type, with details such as vector dimensions or voices."""
    known = row["capabilities"]
    if known is None:
        return ""
    modalities = [modality for modality in known["inputs"] if modality not in ("text", "image")]
    more = modalities if known["type"] == "vision" else []
    if known.get("dimensions"):
        more = [f"{known['dimensions']:,} dimensions"]
    if count := len(known.get("voices") or ()):
        more = [f"{count} voice{'' if count == 1 else 's'}"]
    return f"{known['type']} ({', '.join(more)})" if more else str(known["type"])
