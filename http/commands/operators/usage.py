"""The command `greenroom usage`: requests and tokens of each key and day."""

from __future__ import annotations

import json
from contextlib import closing
from urllib.parse import urlencode

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.standard_streams import for_line

COLUMNS = (
    "day",
    "key",
    "requests",
    "refused",
    "failed",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "seconds",
)


@click.command("usage")
@click.option("--since", metavar="DAY", help="First day in UTC, such as 2026-11-24.")
@click.option("--key", metavar="NAME|ID", help="Usage of this key only.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each key and day.")
@url_option
def command(since: str | None, key: str | None, as_json: bool, url: str) -> None:
    """Sum up the requests and tokens of each key and day, the latest day first.

    Days are in UTC. `-` stands for requests that were refused before their key was known. Columns are
    separated by tabs.

    \b
    Examples:
      greenroom usage --since 2026-11-01
      greenroom usage --json
    """
    given = {name: value for name, value in (("since", since), ("key", key)) if value is not None}
    with closing(AdminClient(url)) as client:
        entries = client.get(f"/admin/usage?{urlencode(given)}")["usage"]
    if as_json:
        for entry in entries:
            click.echo(json.dumps(entry))
        return
    click.echo("\t".join(COLUMNS))
    for entry in entries:
        key = for_line(entry["key_name"] or entry["key"]) or "-"
        shown = {**entry, "key": key, "seconds": f"{entry['seconds']:.1f}"}
        click.echo("\t".join(str(shown[name]) for name in COLUMNS))
