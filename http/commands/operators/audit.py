"""The command `greenroom audit`: the requests that have ended, from a running server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, get_args
from urllib.parse import urlencode

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.standard_streams import for_line
from greenroom.schemas.audit import Ending


@click.command("audit")
@click.option("--since", metavar="TIME", help="Unix time in seconds, or a time such as 2026-11-24T12:00Z.")
@click.option("--until", metavar="TIME", help="Time likewise; what began then or later is left out.")
@click.option("--key", metavar="NAME|ID", help="Requests of this key only.")
@click.option("--model", metavar="MODEL", help="Requests to this model only.")
@click.option("--status", type=click.IntRange(100, 599), help="Requests with this HTTP status only.")
@click.option("--ending", type=click.Choice(get_args(Ending)), help="Requests that ended so only.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="Most requests.")
@click.option("--after", type=click.IntRange(0), metavar="NUMBER", help="Requests before this number only.")
@click.option("--follow", is_flag=True, help="Print requests as they end, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each request.")
@url_option
def command(url: str, *, follow: bool, as_json: bool, **filters: object) -> None:
    """List the requests that a running server has answered, refused or lost, the newest first.

    Each is a line with its number, time, key, ending, status, route, model, tokens (of the prompt, of these
    from the cache, and of the answer), seconds, and the code of its problem. At a terminal a heading names
    the columns.

    \b
    Examples:
      greenroom audit --ending failed --since 2026-11-24
      greenroom audit --follow --json
    """
    given = {name: str(value) for name, value in filters.items() if value is not None}
    if not as_json and sys.stdout.isatty():
        click.echo(_HEADING)
    with closing(AdminClient(url)) as client:
        for entry in _followed(client, given) if follow else _listed(client, given):
            click.echo(json.dumps(entry) if as_json else _line(entry))


_HEADING = "number  time  key  ending  status  route  model  prompt/cached/generated tokens  seconds  problem"


def _listed(client: AdminClient, filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    found = client.get(f"/admin/audit?{urlencode(filters)}")
    yield from found["requests"]
    if found["lost"]:
        click.echo(f"{found['lost']} requests could not be kept since the server's start.", err=True)


def _followed(client: AdminClient, filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, entry in client.stream(f"/admin/audit?{urlencode({**filters, 'follow': 'true'})}"):
        if name == "request":
            yield entry


def _line(entry: Mapping[str, Any]) -> str:
    time = datetime.fromtimestamp(entry["time"]).astimezone().isoformat(" ", "seconds")
    tokens = "/".join(_number(entry[f"{name}_tokens"]) for name in ("prompt", "cached", "generated"))
    words = (
        _number(entry["number"]),
        time,
        entry["key_name"] or entry["key"] or "-",
        entry["ending"],
        _number(entry["status"]),
        entry["route"] or "-",
        entry["model"] or "-",
        tokens,
        f"{entry['seconds']:.2f}",
        entry["error"],
    )
    return for_line("  ".join(word for word in words if word))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
