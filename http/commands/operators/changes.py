"""The commands `greenroom load`, `unload`, `pin`, `unpin` and `cancel`: changes of a running server."""

from __future__ import annotations

from urllib.parse import quote

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.standard_streams import for_terminal
from greenroom.schemas.protocols.download_protocol import size_text


@click.command("load")
@click.argument("model")
@url_option
def load(model: str, url: str) -> None:
    """Load a model of a running server, and wait until it is ready.

    Others are unloaded for it if it needs their memory, as for a request.

    \b
    Examples:
      greenroom load default
      greenroom load mlx-community/Qwen3-4B-4bit --url http://localhost:9000
    """
    loaded = AdminClient(url).post("/admin/models/load", {"model": model})
    click.echo(f"{for_terminal(loaded['id'])} is ready, after {loaded['seconds']:.1f} s.")


@click.command("unload")
@click.argument("model")
@click.option("--now", is_flag=True, help="Fail its requests instead of waiting for their ends.")
@url_option
def unload(model: str, now: bool, url: str) -> None:
    """Unload a model of a running server, once its requests have ended.

    \b
    Examples:
      greenroom unload default
      greenroom unload default --now
    """
    body = {"model": model, "mode": "now" if now else "drain"}
    unloaded = AdminClient(url).post("/admin/models/unload", body)
    name, freed = for_terminal(unloaded["id"]), unloaded["freed_bytes"]
    click.echo(
        f"{name} is unloaded: {size_text(freed)} are free again." if freed else f"{name} is not loaded."
    )


@click.command("pin")
@click.argument("model")
@url_option
def pin(model: str, url: str) -> None:
    """Keep a model of a running server in memory until the server ends.

    It is not loaded by this, but stays once it is. The setting `pinned` does that for good.

    \b
    Examples:
      greenroom pin default
    """
    _pin(url, model, pinned=True)


@click.command("unpin")
@click.argument("model")
@url_option
def unpin(model: str, url: str) -> None:
    """Let a pinned model of a running server be unloaded for others again.

    \b
    Examples:
      greenroom unpin default
    """
    _pin(url, model, pinned=False)


@click.command("cancel")
@click.argument("request")
@url_option
def cancel(request: str, url: str) -> None:
    """Cancel a request of a running server, by its id.

    `greenroom ps` lists the ids.

    \b
    Examples:
      greenroom cancel req_0123456789abcdef
    """
    AdminClient(url).post(f"/admin/requests/{quote(request, safe='')}/cancel")
    click.echo(f"{for_terminal(request)} is cancelled.")


def _pin(url: str, model: str, *, pinned: bool) -> None:
    found = AdminClient(url).post("/admin/models/pin", {"model": model, "pinned": pinned})
    click.echo(f"{for_terminal(found['id'])} is {'pinned' if found['pinned'] else 'no longer pinned'}.")
