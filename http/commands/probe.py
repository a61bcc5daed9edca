"""The command `greenroom probe`: the capabilities of a model, found by asking it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.progress import findings_text, probe_progress
from greenroom.http.terminal.streams import MODEL
from greenroom.schemas.settings.settings import Settings

FLAGS = ("db", "device", "dtype", "kv_bits", "max_context", "memory_bytes", "trust_remote_code")


@click.command()
@click.argument("model", type=MODEL)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Longest answer to a question (default: 1,024 tokens)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a list.")
@url_option
@settings_options(*FLAGS)
@click.pass_obj
def command(
    local: LocalModels, settings: Settings, model: str, max_tokens: int | None, as_json: bool, url: str
) -> None:
    """Find out what a model can do, and remember it.

    The model is loaded and asked some questions: its calls of tools and its reasoning are read by the
    parsers for its family, then by all others; other kinds embed, speak or transcribe a little. Servers
    and commands follow the findings from its next load on, until its files change. MODEL is a local folder
    or a hub id. Where a running server has the database open, that server (`--url`) probes the model, which
    may then be any name that it knows.

    \b
    Examples:
      greenroom probe ~/models/Qwen3-4B-4bit
      greenroom probe mlx-community/Qwen3-4B-4bit --json
    """
    from greenroom.actors.store.database_file import MEMORY, default_path, has_server
    from greenroom.http.commands.downloads import fetch_missing
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.settings.start_checks import check_at_start, locate_database

    if settings.db == MEMORY:
        raise click.UsageError("--db must be a file: the findings would be lost with the memory")
    configure_command_logging(settings.log_level)
    # Named, so that the start fails if findings could not be kept.
    settings = locate_database(attrs.evolve(settings, db=settings.db or str(default_path())))
    database = Path(str(settings.db)).expanduser()
    if has_server(database):
        probe_by_server(url, database, model, max_tokens, as_json=as_json)
        return
    settings = attrs.evolve(settings, models=(model,))
    check_at_start(settings, local)
    fetch_missing(local, settings)

    from greenroom.http.process.command_run import run_with_system
    from greenroom.http.terminal.progress import print_findings
    from greenroom.schemas.protocols.pool_protocol import ProbeModel

    message = ProbeModel("default", max_tokens)
    run_with_system(settings, lambda system: print_findings(system.pool, message, as_json=as_json))


def probe_by_server(url: str, database: Path, model: str, max_tokens: int | None, *, as_json: bool) -> None:
    """Let the server probe a model, and print its findings.

    Args:
        model: Name that the server knows, or a local folder, by whose name it must mean the same.

    Raises:
        ClickException: The server at that address has another database or another model, or cannot probe it.
    """
    client = AdminClient(url)
    if client.get("/admin/status").get("database") != str(database.resolve()):
        raise click.ClickException(
            f"a server has {database} open, but not the one at {url}: name its address by --url"
        )
    name = _name_on(client, model)
    body = {"model": name, "max_tokens": max_tokens, "stream": True}
    click.echo(findings_text(_findings(client, body), as_json=as_json))


def _name_on(client: AdminClient, model: str) -> str:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    name = folder.resolve().name
    known = client.post("/admin/models/plan", {"model": name})["folder"]
    if known is None or Path(known).resolve() != folder.resolve():
        raise click.ClickException(f"the server means another folder by '{name}': {known}")
    return name


def _findings(client: AdminClient, body: dict[str, Any]) -> dict[str, Any]:
    with probe_progress() as show:
        for event, document in client.stream("/admin/models/probe", body):
            match event:
                case "progress":
                    show(document["answered"], document["questions"])
                case "error":
                    raise click.ClickException(document["detail"])
                case "findings":
                    found: dict[str, Any] = document
                    return found
    raise click.ClickException("the server stopped before the end of the probe")
