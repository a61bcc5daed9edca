"""The command `greenroom probe`: the capabilities of a model, found by asking it."""

from __future__ import annotations

from pathlib import Path

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.admin_client import url_option
from greenroom.http.terminal.option_types import MODEL
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
    from greenroom.actors.store.database.database_file import MEMORY
    from greenroom.actors.store.database.server_locks import has_server
    from greenroom.http.commands.downloads import fetch_missing
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.settings.database_location import locate_database
    from greenroom.http.settings.start_checks import check_at_start

    if settings.db == MEMORY:
        raise click.UsageError("--db must be a file: the findings would be lost with the memory")
    configure_command_logging(settings.log_level)
    settings = locate_database(settings)
    database = Path(str(settings.db)).expanduser()
    if has_server(database):
        from greenroom.http.commands.operators.probe_by_server import probe_by_server

        probe_by_server(url, database, model, max_tokens, as_json=as_json)
        return
    settings = attrs.evolve(settings, models=(model,))
    check_at_start(settings, local)
    fetch_missing(local, settings)

    from greenroom.http.process.command_run import run_with_system
    from greenroom.http.terminal.probe_findings import print_findings
    from greenroom.schemas.protocols.probe_protocol import ProbeModel

    message = ProbeModel("default", max_tokens)
    run_with_system(settings, lambda system: print_findings(system.pool, message, as_json=as_json))
