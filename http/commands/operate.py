"""The commands `greenroom ps`, `load`, `unload`, `pin`, `unpin`, `cancel`, `reload` and `inspect`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from greenroom.http.terminal.admin_client import AdminClient, url_option
from greenroom.http.terminal.streams import for_line, for_terminal
from greenroom.schemas.protocols.download_protocol import size_text

if TYPE_CHECKING:
    from rich.console import Group


MODEL_COLUMNS = ("model", "state", "size", "running", "waiting", "stays")
SERVER_COLUMNS = ("mcp server", "state", "tools", "calls", "failed", "error")
REMOTE_COLUMNS = ("remote", "state", "models", "running", "requests", "failed", "problem")
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
@click.option("--all", "with_remotes", is_flag=True, help="List the models of remotes, too.")
@url_option
def command(watch: bool, interval: int, as_json: bool, with_remotes: bool, url: str) -> None:
    """List the models in the memory of a running server, and its requests.

    In a pipe each model and each answer is a line with tabs; a blank line ends each update of `--watch`.

    \b
    Examples:
      greenroom ps
      greenroom ps --watch --url http://localhost:9000
    """
    client = AdminClient(url)
    looks = _looks(client, interval if watch else None, with_remotes=with_remotes)
    if as_json:
        for look in looks:
            click.echo(json.dumps(look))
    elif not sys.stdout.isatty():
        for look in looks:
            rows = (
                *_model_rows(look["models"]),
                *_request_rows(look["requests"]),
                *_server_rows(look["mcp"]),
                *_remote_rows(look["remotes"]),
            )
            click.echo("".join("\t".join(row) + "\n" for row in rows), nl=watch)
    else:
        _show(looks, live=watch)


def _looks(
    client: AdminClient, interval: int | None, *, with_remotes: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the server's models and requests: once, or again and again if there is an interval in seconds."""
    while True:
        models, requests = client.get("/admin/models"), client.get("/admin/requests")
        status = client.get("/admin/status")
        remotes = status.get("remotes", ())
        used = [*models["models"], *(_remote_models(remotes, models["models"]) if with_remotes else ())]
        servers = {"mcp": status.get("mcp", ()), "remotes": remotes}
        yield {"models": used, "requests": requests["requests"], **servers}
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
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
        made = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            made.add_row(*map(Text, row))  # no markup: brackets of a name are its own
        return made

    models = table(MODEL_COLUMNS, _model_rows(look["models"]))
    further = [
        table(columns, rows)
        for columns, rows, given in (
            (REQUEST_COLUMNS, _request_rows(look["requests"]), look["requests"]),
            (SERVER_COLUMNS, _server_rows(look["mcp"]), look["mcp"]),
            (REMOTE_COLUMNS, _remote_rows(look.get("remotes", ())), look.get("remotes", ())),
        )
        if given
    ]
    return Group(models, *(part for each in further for part in ("", each)))


def _model_rows(models: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for model in models:
        state = model["state"]
        if state == "loading":
            state = f"loading {model['load_progress']:.0%}"
        counts = str(model["running"]), str(model["waiting"])
        size = size_text(model["bytes"]) if model["bytes"] else ""
        yield for_line(model["id"]), state, size, *counts, _stays(model)
        for adapter in model.get("adapters", ()):  # an older server lists none
            yield for_line(f"  + {adapter}"), "adapter", "", "", "", ""
        for number, rank in enumerate(model.get("ranks", ())):
            where = f"  rank {number} on {rank['host']} ({rank['address']}, {rank['link']})"
            yield for_line(where), f"{rank['layers']} layers", size_text(rank["nbytes"]), "", "", ""


def _server_rows(servers: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for server in servers:
        counts = (str(number) for number in (len(server["tools"]), server["calls"], server["failures"]))
        yield for_line(server["label"]), server["state"], *counts, for_line(server["error"])


def _remote_rows(remotes: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for remote in remotes:
        counts = len(remote["models"]), remote["running"], remote["requests"], remote["failures"]
        yield remote["name"], remote["breaker"], *map(str, counts), for_line(remote["problem"])


def _remote_models(
    remotes: Iterable[dict[str, Any]], used: Iterable[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the models of remotes that were not requested here, as `GET /admin/models` has the others."""
    known = {model["id"] for model in used}
    figures = {"bytes": 0, "running": 0, "waiting": 0, "pinned": False, "expires_at": None}
    for remote in remotes:
        for name in remote["models"]:
            if name not in known:
                yield {"id": name, "state": "ready" if name in remote["loaded"] else "idle", **figures}


def _stays(model: dict[str, Any]) -> str:
    if model["pinned"]:
        return "pinned"
    if model["expires_at"] is None:
        return ""
    return f"{max(0.0, model['expires_at'] - time.time()):.0f} s"


def _request_rows(requests: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for request in requests:
        names, seconds = (for_line(request["id"]), for_line(request["model"])), request["seconds"]
        for row in request["rows"]:
            tokens = row["prompt_tokens"], row["cached_tokens"], row["generated_tokens"]
            yield *names, row["stage"], *map(str, tokens), f"{seconds:.1f}"
        if not request["rows"]:
            yield *names, request["state"], "", "", "", f"{seconds:.1f}"


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


@click.command()
@url_option
def reload_command(url: str) -> None:
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


_SHOWN_TOKENS = 20  # Token ids shown of a list; `--json` shows all


@click.command()
@click.argument("ident", metavar="[ID]", required=False)
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def inspect_command(ident: str | None, url: str, as_json: bool) -> None:
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
        for event in found["events"]:
            if event["type"] in ("ServerCall", "ToolResult"):
                click.echo(_printable(_call_line(event)))
        click.echo(f"\nevents: {len(found['events'])}, {found['events_left_out']} left out")
        for name, value in {**found["figures"], **(found["problem"] or {})}.items():
            click.echo(f"{name}: {_printable(str(value))}")


def _summary(line: dict[str, Any]) -> str:
    status = line["status"] or "-"
    words = (line["serial"], line["state"], status, line["route"], line["model"], line["id"])
    return _printable("  ".join(str(word) for word in words if word != ""))


def _call_line(event: dict[str, Any]) -> str:
    if event["type"] == "ServerCall":
        return f"\ncall of {event['server']}/{event['name']}: {event['arguments']}"
    result = "\n".join(part.get("text", "[file]") for part in event["content"])
    return f"{'failed' if event['failed'] else 'result'} after {event['seconds']} s: {result}"


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
