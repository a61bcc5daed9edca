"""A probe by a running server that has the database of the findings open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from greenroom.http.terminal.admin_client import AdminClient
from greenroom.http.terminal.probe_findings import findings_text, probe_progress


def probe_by_server(url: str, database: Path, model: str, max_tokens: int | None, *, as_json: bool) -> None:
    """Let the server probe a model, and print its findings.

    Args:
        url: Address at which the server should answer.
        database: Database that it has open.
        model: Name that the server knows, or a local folder, by whose name it must mean the same.

    Raises:
        ClickException: The server at that address has another database or another model, or cannot probe it.
    """
    client = AdminClient(url)
    if client.get("/admin/status").get("database") != str(database.resolve()):
        raise click.ClickException(
            f"a server has {database} open, but not the one at {url}: name its address by --url"
        )
    name = _name_on(client, model)
    body = {"model": name, "max_tokens": max_tokens, "stream": True}
    click.echo(findings_text(_findings(client, body), as_json=as_json))


def _name_on(client: AdminClient, model: str) -> str:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    name = folder.resolve().name
    known = client.post("/admin/models/plan", {"model": name})["folder"]
    if known is None or Path(known).resolve() != folder.resolve():
        raise click.ClickException(f"the server means another folder by '{name}': {known}")
    return name


def _findings(client: AdminClient, body: dict[str, Any]) -> dict[str, Any]:
    with probe_progress() as show:
        for event, document in client.stream("/admin/models/probe", body):
            match event:
                case "progress":
                    show(document["answered"], document["questions"])
                case "error":
                    raise click.ClickException(document["detail"])
                case "findings":
                    found: dict[str, Any] = document
                    return found
    raise click.ClickException("the server stopped before the end of the probe")
