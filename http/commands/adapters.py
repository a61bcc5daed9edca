"""The commands `greenroom adapters list`, `load` and `unload`."""

from __future__ import annotations

import json
from contextlib import closing
from urllib.parse import quote

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.streams import for_line
from greenroom.schemas.protocols.download_protocol import size_text


@click.group("adapters")
def command() -> None:
    """List, load and unload the LoRA adapters of a running server.

    \b
    Examples:
      greenroom adapters list
      greenroom adapters load qwen3:sql
      greenroom adapters unload qwen3:sql
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each adapter.")
@url_option
def list_adapters(as_json: bool, url: str) -> None:
    """List the adapters with their bases, their size in memory, and why some are refused."""
    with closing(AdminClient(url)) as client:
        listed = client.get("/admin/adapters")["adapters"]
    for adapter in listed:
        if as_json:
            click.echo(json.dumps(adapter))
            continue
        size = size_text(adapter["bytes"]) if adapter["bytes"] else ""
        row = adapter["id"], adapter["base_model"] or "", size, adapter["problem"] or ""
        click.echo("\t".join(map(for_line, row)))


@command.command("load")
@click.argument("name")
@url_option
def load(name: str, url: str) -> None:
    """Load an adapter and its base; its folder may be new, or unloaded before."""
    with closing(AdminClient(url)) as client:
        changed = client.post("/admin/adapters", {"name": name})
    click.echo(f"{for_line(changed['id'])} is loaded beside {for_line(changed['base_model'])}.")


@command.command("unload")
@click.argument("name")
@url_option
def unload(name: str, url: str) -> None:
    """Unload an adapter: running rows finish on it, and no new request may name it."""
    with closing(AdminClient(url)) as client:
        changed = client.delete(f"/admin/adapters/{quote(name)}")
    click.echo(f"{for_line(changed['id'])} is unloaded; {for_line(changed['base_model'])} stays.")
