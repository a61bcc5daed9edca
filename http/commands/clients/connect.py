"""The command `greenroom connect`: the lines to paste into another program's settings."""

from __future__ import annotations

import os
from contextlib import closing

import click

from greenroom.http.terminal.admin_client import DEFAULT_URL, check_client_url
from greenroom.http.terminal.standard_streams import for_terminal


@click.command("connect")
@click.argument("client", required=False)
@click.option(
    "--url", callback=check_client_url, help=f"Address of the server [default: a running one, {DEFAULT_URL}]."
)
@click.option("--model", default="default", show_default=True, metavar="MODEL", help="Model to use.")
def command(client: str | None, url: str | None, model: str) -> None:
    """Print the lines that connect a program to a server; without CLIENT, list the programs.

    Nothing is changed. YOUR_KEY stands for a key (`greenroom keys`); while the server needs none, any text
    will do.

    \b
    Examples:
      greenroom connect
      greenroom connect zed --model org/name
      greenroom connect open-webui --url http://studio.local:8000
    """
    from greenroom.http.clients.connected import connected_names, lines_for, needed_tokens

    names = connected_names()
    if client is None:
        for name, title in sorted(names.items()):
            click.echo(f"{name:<16}{title}")
        return
    if client not in names:
        raise click.BadParameter(f"'{client}' is none of {', '.join(sorted(names))}", param_hint="CLIENT")

    import httpx2

    from greenroom.http.clients.server_facts import ServerFacts, facts_of
    from greenroom.http.process.runtime_file import running_servers
    from greenroom.http.terminal.chosen_server import ServedModels

    running = [server for server in running_servers() if server.urls] if url is None else []
    place = url or (running[0].urls[0] if running else DEFAULT_URL)
    key = os.environ.get("GREENROOM_API_KEY") or (running[0].key if running else "") or "none"
    facts = ServerFacts(place, model, "YOUR_KEY")
    try:
        with closing(ServedModels(place, key, verifies=not running)) as models:
            listed = models.named(model)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        reason = error or type(error).__name__
        click.echo(
            for_terminal(f"greenroom: {place} does not answer ({reason}): the lengths are guesses"), err=True
        )
    else:
        if listed is None:
            raise click.ClickException(for_terminal(f"the server at {place} has no model '{model}'"))
        facts = facts_of(place, "YOUR_KEY", listed)
        if advice := facts.advice_for(names[client], needed_tokens(client)):
            click.echo(for_terminal(f"greenroom: {advice}"), err=True)
    try:
        text = lines_for(client, facts)
    except ValueError as error:
        raise click.ClickException(for_terminal(str(error))) from error
    click.echo(for_terminal_lines(text))


def for_terminal_lines(text: str) -> str:
    """Return lines without the control characters that a terminal would interpret."""
    return "\n".join(map(for_terminal, text.split("\n")))
