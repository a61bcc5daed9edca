"""The command `greenroom inspect`: the last requests of a server, with their prompts and answers."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any
from urllib.parse import quote

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option

_SHOWN_TOKENS = 20
"""Token ids shown of a list; `--json` shows all."""


@click.command()
@click.argument("ident", metavar="[ID]", required=False)
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(ident: str | None, url: str, as_json: bool) -> None:
    """Show the last requests of a server, with their prompts and answers.

    The server must have been started with `--inspect N`, and keeps the last N requests in memory only. ID is
    a request's number or its `x-request-id`; without it, all are listed.

    \b
    Examples:
      greenroom serve --inspect 20
      greenroom inspect
      greenroom inspect 7 --json
    """
    query = "" if ident is None else f"?id={quote(ident, safe='')}"
    with closing(AdminClient(url)) as client:
        found = client.get(f"/admin/inspect{query}")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif ident is None:
        for line in found["requests"]:
            click.echo(_summary(line))
    else:
        click.echo(_summary(found))
        for name in ("body", "prompt", "failure"):
            if found[name]:
                click.echo(f"\n{name}:\n{_printable(found[name])}")
        click.echo(f"\ntokens: {_tokens(found['tokens'])}")
        for output in found["outputs"]:
            click.echo(f"\nraw output {output['index']} ({_tokens(output['tokens'])}):")
            click.echo(_printable(output["raw"]))
        click.echo(f"\nevents: {len(found['events'])}, {found['events_left_out']} left out")
        for name, value in {**found["figures"], **(found["problem"] or {})}.items():
            click.echo(f"{name}: {_printable(str(value))}")


def _summary(line: dict[str, Any]) -> str:
    status = line["status"] or "-"
    words = (line["serial"], line["state"], status, line["route"], line["model"], line["id"])
    return _printable("  ".join(str(word) for word in words if word != ""))


def _tokens(tokens: list[int]) -> str:
    shown = " ".join(map(str, tokens[:_SHOWN_TOKENS]))
    more = " …" if len(tokens) > _SHOWN_TOKENS else ""
    return f"{len(tokens)} tokens{': ' if tokens else ''}{shown}{more}"


def _printable(text: str) -> str:
    """Return a text without control characters, which a terminal would obey: others have written it."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )
