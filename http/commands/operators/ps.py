"""The command `greenroom ps`: models and requests of a running server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.standard_streams import for_line
from greenroom.schemas.protocols.download_protocol import size_text

if TYPE_CHECKING:
    from rich.console import Group

MODEL_COLUMNS = ("model", "state", "size", "running", "waiting", "stays")
REQUEST_COLUMNS = ("request", "model", "stage", "prompt", "cached", "generated", "seconds")


@click.command("ps")
@click.option("--watch", is_flag=True, help="Update the list until interrupted.")
@click.option(
    "--interval",
    type=click.IntRange(1, 3_600),
    default=1,
    show_default=True,
    help="Seconds between two updates of `--watch`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object for each update.")
@url_option
def command(watch: bool, interval: int, as_json: bool, url: str) -> None:
    """List the models in the memory of a running server, and its requests.

    In a pipe each model and each answer is a line with tabs; a blank line ends each update of `--watch`.

    \b
    Examples:
      greenroom ps
      greenroom ps --watch --url http://localhost:9000
    """
    client = AdminClient(url)
    looks = _looks(client, interval if watch else None)
    if as_json:
        for look in looks:
            click.echo(json.dumps(look))
    elif not sys.stdout.isatty():
        for look in looks:
            rows = (*_model_rows(look["models"]), *_request_rows(look["requests"]))
            click.echo("".join("\t".join(row) + "\n" for row in rows), nl=watch)
    else:
        _show(looks, live=watch)


def _looks(client: AdminClient, interval: int | None) -> Iterator[dict[str, Any]]:
    """Yield the server's models and requests: once, or again and again if there is an interval in seconds."""
    while True:
        models, requests = client.get("/admin/models"), client.get("/admin/requests")
        yield {"models": models["models"], "requests": requests["requests"]}
        if interval is None:
            return
        time.sleep(interval)


def _show(looks: Iterable[dict[str, Any]], *, live: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    if not live:
        for look in looks:
            Console().print(tables(look))
        return
    with Live(auto_refresh=False) as screen:
        for look in looks:
            screen.update(tables(look), refresh=True)


def tables(look: dict[str, Any]) -> Group:
    """Return the state of a server as tables for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
        made = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            made.add_row(*map(Text, row))  # no markup: brackets of a name are its own
        return made

    models = table(MODEL_COLUMNS, _model_rows(look["models"]))
    if not look["requests"]:
        return Group(models)
    return Group(models, "", table(REQUEST_COLUMNS, _request_rows(look["requests"])))


def _model_rows(models: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for model in models:
        state = model["state"]
        if state == "loading":
            state = f"loading {model['load_progress']:.0%}"
        counts = str(model["running"]), str(model["waiting"])
        size = size_text(model["bytes"]) if model["bytes"] else ""
        yield for_line(model["id"]), state, size, *counts, _stays(model)


def _stays(model: dict[str, Any]) -> str:
    if model["pinned"]:
        return "pinned"
    if model["expires_at"] is None:
        return ""
    return f"{max(0.0, model['expires_at'] - time.time()):.0f} s"


def _request_rows(requests: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each answer, or one for a request without any yet."""
    for request in requests:
        names, seconds = (for_line(request["id"]), for_line(request["model"])), request["seconds"]
        for row in request["rows"]:
            tokens = row["prompt_tokens"], row["cached_tokens"], row["generated_tokens"]
            yield *names, row["stage"], *map(str, tokens), f"{seconds:.1f}"
        if not request["rows"]:
            yield *names, request["state"], "", "", "", f"{seconds:.1f}"
