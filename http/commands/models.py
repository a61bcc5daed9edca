"""The commands `greenroom models`, `show`, `search`, `rm` and `pull`: models on this machine and the hub."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import BadSettingError, settings_options
from greenroom.http.terminal.admin_client import check_url
from greenroom.http.terminal.running_server import listing_server, server_options
from greenroom.http.terminal.streams import MODEL, without_home
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.http.terminal.admin_client import AdminClient
    from greenroom.http.terminal.progress import Show


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
        rows = _described(server, server.get("/v1/models"))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            click.echo("\t".join(_cells(row)))


def _described(server: AdminClient, answer: Any) -> list[dict[str, Any]]:
    """Return the models that a server describes. Raises ClickException: it is another program."""
    rows = answer.get("data", [answer]) if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "settings" in row for row in rows):
        raise click.ClickException(f"the server at {server.url} is no Greenroom: it describes no models")
    return rows


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    place = row.get("problem") or row["state"] or row["folder"] or "not on this machine"
    context = f"{row['context_length']:,}" if row["context_length"] else ""
    size = size_text(row["size_bytes"]) if row["size_bytes"] else ""
    cells = (row["id"], _kind(row), row["architecture"] or "", context, size, place)
    return tuple("".join(each if each.isprintable() else " " for each in cell) for cell in cells)


def _print_table(rows: list[dict[str, Any]]) -> None:
    def shown(row: dict[str, Any]) -> tuple[str, ...]:
        *cells, place = _cells(row)
        return *cells, "\n".join((without_home(place), *row.get("notices", ())))

    place = "state" if any(row["state"] for row in rows) else "folder"
    _print(("model", "kind", "architecture", "context", "size", place), map(shown, rows))


_NUMBERS = ("context", "size", "downloads", "likes")  # Columns that end at the right


def _print(columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table, whose cells are folded where the terminal is narrow."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        justify: Literal["right", "left"] = "right" if column in _NUMBERS else "left"
        table.add_column(column, overflow="fold", justify=justify)
    for row in rows:
        table.add_row(*map(Text, row))  # no markup: brackets of a name are its own
    Console().print(table)


def _kind(row: dict[str, Any]) -> str:
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


_NOT_SHOWN = ("settings", "capabilities", "object", "created", "owned_by", "name")
_SIZES = ("size_bytes", "required_bytes", "least_bytes")


@click.command()
@click.argument("model", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
@settings_options("model_dir", "trust_remote_code", "model_settings", "profiles", "memory_bytes", "db")
@click.pass_obj
def show_command(
    local: LocalModels, settings: Settings, model: str, as_json: bool, url: str | None, stays_local: bool
) -> None:
    """Show what is known about a model, and where its settings come from.

    MODEL is a name as in requests, a folder or a hub id. If a server runs on this machine that has the model,
    it tells this, and the model's state. Nothing is loaded or downloaded. The last part has
    each setting with its value and where that came from: default, file, environment, flag, the model's own
    table, or a profile.

    \b
    Examples:
      greenroom show default
      greenroom show ~/models/Qwen3-4B-4bit --json
    """
    rows = _served(settings, url, model, stays_local=stays_local) or local.describe(settings, model)
    if not rows:
        if (why := local.why_no_model(model)) is not None:
            raise BadSettingError(why)
        rows = local.describe(attrs.evolve(settings, models=(model,)), model)
    if as_json:
        click.echo(json.dumps(rows[0], indent=2))
        return
    settings_of_model = rows[0]["settings"]
    width = max(map(len, (*_facts(rows[0]), *settings_of_model)))
    for name, value in _facts(rows[0]).items():
        if value not in (None, [], {}):
            click.echo(f"{name:<{width}} {_shown(name, value)}")
    click.echo("\nsettings")
    for name, setting in settings_of_model.items():
        if setting["value"] not in (None, [], ()):
            click.echo(f"  {name:<{width}} {_shown(name, setting['value'])}  ({setting['origin']})")


def _served(settings: Settings, url: str | None, model: str, *, stays_local: bool) -> list[dict[str, Any]]:
    """Return the description of a model by a running server; none if it does not serve it, or none runs."""
    server = listing_server(settings, url, stays_local=stays_local)
    if server is None or (found := server.get(f"/v1/models/{quote(model)}", absent_ok=True)) is None:
        if url is not None:
            raise click.ClickException(f"the server at {url} has no model '{model}'")
        return []
    return _described(server, found)


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a description, with what it takes and gives, and without its settings."""
    capabilities = row["capabilities"] or {}
    modalities = {name: capabilities.get(name) for name in ("inputs", "outputs")}
    facts = {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    return {**facts, **modalities, "state": facts["state"] or "unknown without a server"}


def _shown(name: str, value: Any) -> str:
    if name in _SIZES:
        return f"{size_text(value)} ({value:,} bytes)"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if isinstance(value, dict):
        text = ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, bool):
        text = "yes" if value else "no"
    return "".join(each if each.isprintable() else " " for each in text)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Longest list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def search_command(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Search the hub for models in MLX's format, the most downloaded first.

    In a pipe each model is a line, with tabs between its id, its downloads, its likes,
    and whether it is here or gated.

    \b
    Examples:
      greenroom search qwen3 4bit
      greenroom search whisper --limit 5 --json
    """
    from greenroom.actors.downloads.downloads import search
    from greenroom.schemas.problems import ProblemError

    try:
        found = search(" ".join(words), limit)
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    if as_json:
        click.echo(json.dumps([attrs.asdict(each) for each in found], indent=2))
        return
    rows: list[tuple[str, ...]] = [
        (
            "".join(letter if letter.isprintable() else "?" for letter in each.id),
            f"{each.downloads:,}",
            f"{each.likes:,}",
            ", ".join(word for word, told in (("here", each.local), ("gated", each.gated)) if told),
        )
        for each in found
    ]
    if sys.stdout.isatty():
        _print(("model", "downloads", "likes", ""), rows)
    else:
        for row in rows:
            click.echo("\t".join(row))


@click.command()
@click.argument("model", metavar="MODEL[@REVISION]", type=MODEL)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--url", callback=check_url, help="Server that unloads the model first (default: a running one)."
)
@settings_options("model_dir")
def rm_command(settings: Settings, model: str, yes: bool, url: str | None) -> None:
    """Delete a model's files, from the hub's cache or from a --model-dir.

    MODEL is its own id, as `greenroom models` lists it; nothing outside of these folders is deleted. A server
    that runs on this machine unloads the model first, and refuses while requests use it.

    \b
    Examples:
      greenroom rm mlx-community/Qwen3-4B-4bit
      greenroom rm mlx-community/Qwen3-4B-4bit@v1 --yes
    """
    from greenroom.actors.downloads.upkeep import find_removal
    from greenroom.http.terminal.admin_client import find_server
    from greenroom.schemas.problems import ProblemError

    try:
        removal = find_removal(model, settings)
        what = f"{model}, {size_text(removal.nbytes)} in {removal.folder}"
        if not yes:
            click.confirm(f"Delete {what}?", abort=True, err=True)
        if (server := find_server(url, settings, sure=True)) is not None:
            freed = server.post("/admin/models/delete", {"model": model})["freed_bytes"]
        else:
            with removal.claim():
                freed = removal.remove()
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    click.echo(f"deleted {model}: {size_text(freed)} are free again", err=True)


@click.command()
@click.argument("model", metavar="REPO[@REVISION]", type=MODEL)
@click.option(
    "--url", callback=check_url, help="Server that fetches (default: a running one of this machine)."
)
@click.option("--no-probe", is_flag=True, help="Do not let a server probe the model.")
@settings_options("trust_remote_code")
@click.pass_obj
def pull_command(local: LocalModels, settings: Settings, model: str, url: str | None, no_probe: bool) -> None:
    """Fetch a model of the hub into its cache.

    Only the files that MLX needs are fetched. An interrupted fetch goes on where it was, every file is
    checked against the hub's hash, and two processes share a fetch. HF_TOKEN, HF_ENDPOINT, HF_HUB_CACHE and
    HF_HUB_OFFLINE mean what they mean to the hub's own tools. If a server of this user runs on this machine
    and these are the same there, it fetches, and then probes the model if that fits beside the loaded ones,
    else after its first load. Without a server the folder is printed.

    \b
    Examples:
      greenroom pull mlx-community/Qwen3-4B-4bit
      greenroom pull mlx-community/Qwen3-4B-4bit@main --no-probe
    """
    from greenroom.actors.downloads.upkeep import want_probe
    from greenroom.http.commands.downloads import ended_by_signals, sentence
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.terminal.admin_client import find_server, hub_differs
    from greenroom.http.terminal.progress import DownloadLines, download_bar
    from greenroom.schemas.models.model_description import Download
    from greenroom.schemas.problems import ProblemError

    configure_command_logging(settings.log_level)

    def tell(download: Download) -> None:
        sys.stderr.write(f"{sentence(download)}\n")  # not by click: see `fetch_missing`

    display = download_bar() if sys.stderr.isatty() else nullcontext(DownloadLines().show)
    server = find_server(url, settings)
    if server is not None and url is None and (differs := hub_differs(server.url)) is not None:
        click.echo(f"the server at {server.url} has {differs}: fetching here (--url lets it fetch)", err=True)
        server = None
    with ended_by_signals(), display as show:
        if server is not None:
            _pull_by_server(server, model, not no_probe, show)
            return
        try:
            folder = local.fetch(model, settings, tell, show)
        except ProblemError as error:
            raise click.ClickException(error.problem.detail) from error
    want_probe(model, wanted=not no_probe)
    click.echo(folder)


def _pull_by_server(server: AdminClient, model: str, probe: bool, show: Show) -> None:
    """Let a server fetch a model, and show its progress; the fetch goes on if this process ends. Raises
    ClickException: it has failed, or was cancelled.
    """
    from greenroom.schemas.protocols.download_protocol import DownloadProgress

    click.echo(f"the server at {server.url} fetches {model}", err=True)
    state, problem = "cut", None
    for _, event in server.stream("/admin/pull", {"model": model, "probe": probe}):
        state, problem = event["state"], event["problem"]
        figures = (event["files"], event["bytes"], event["received"], event["bytes_per_second"])
        show(DownloadProgress(event["stage"], *figures))
    if state != "completed":
        raise click.ClickException(problem or f"the fetch was {state}")
