"""The command `greenroom reload`: changed settings for a running server."""

from __future__ import annotations

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.standard_streams import for_terminal


@click.command()
@url_option
def command(url: str) -> None:
    """Have a running server take in changed settings, without a restart.

    It reads its file again: models and their settings, profiles, hosts and the log level. Changes that need a
    restart are named. With a wrong setting nothing changes. SIGHUP does the same.

    \b
    Examples:
      greenroom reload
      greenroom reload --url http://localhost:9000
    """
    answer = AdminClient(url).post("/admin/reload")
    _tell("in force", answer["applied"])
    _tell("opened anew for the next request", answer["reopened"])
    _tell("need a restart", answer["needs_restart"])
    if not any(answer.values()):
        click.echo("nothing has changed")


def _tell(meaning: str, names: list[str]) -> None:
    if names:
        click.echo(f"{meaning}: {for_terminal(', '.join(names))}")
