"""The commands `greenroom keys`, `audit` and `usage`: API keys, and what was asked with them."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote, urlencode

import attrs
import click

from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.admin_client import AdminClient, check_url, url_option
from greenroom.http.terminal.streams import for_line, for_terminal
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import Ending

if TYPE_CHECKING:
    from greenroom.actors.store.keys_table import KeysTable


_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MEMORY = "the database in memory is the running server's own: give --url"


def _place(command: Callable[..., Any]) -> Callable[..., Any]:
    url = click.option("--url", callback=check_url, help="Running server to ask, instead of the database.")
    return url(settings_options("db")(command))


@click.group("keys")
def command() -> None:
    """Make, list and revoke API keys.

    Until there is a key, no request needs one. Once a key was made, every request does, until
    `greenroom keys off`. A server that runs with the same database takes changes in within a second. With
    --url, the server itself is asked: its operators' routes need an admin key then, which GREENROOM_API_KEY
    holds.

    \b
    Examples:
      greenroom keys add laptop --admin
      greenroom keys add prometheus --metrics
      greenroom keys add guest --model 'qwen*' --requests-per-minute 20 --expires 7d
      greenroom keys revoke guest
    """


@command.command("add")
@click.argument("name")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="Model or pattern it may use.")
@click.option("--tools", multiple=True, metavar="TOOL", help="Tool or pattern its requests may declare.")
@click.option("--mcp", multiple=True, metavar="SERVER", help="MCP server whose tools its chats may call.")
@click.option("--requests-per-minute", type=click.IntRange(1), metavar="N", help="Limit on its requests.")
@click.option("--tokens-per-minute", type=click.IntRange(1), metavar="N", help="Limit on its tokens.")
@click.option("--concurrent", type=click.IntRange(1), metavar="N", help="Limit on its requests at once.")
@click.option(
    "--priority",
    type=int,
    default=0,
    metavar="N",
    help="Priority of its requests, which may only raise it; lower goes first.",
)
@click.option("--downloads", is_flag=True, help="Let its requests bring models, with allow_downloads.")
@click.option("--local-only", is_flag=True, help="Keep its requests from models elsewhere.")
@click.option("--admin", is_flag=True, help="Open the routes for operators too.")
@click.option("--metrics", is_flag=True, help="Open /metrics, and nothing else.")
@click.option("--expires", metavar="TIME", help="Time such as 2027-01-31, or 12h, 30d, 4w from now.")
@_place
def add(settings: Settings, url: str | None, expires: str | None, **rights: Any) -> None:
    """Make a key, and print it: it cannot be shown again, since only its digest is kept."""
    from greenroom.schemas.wire.admin_upkeep import KeyBody, new_key

    body = KeyBody(**rights, expires=None if expires is None else _time(expires, time.time()))
    if url is None:
        with _table(settings) as table:
            record, secret = new_key(body, time.time())
            table.add(record)
    else:
        with closing(AdminClient(url)) as client:
            secret = client.post("/admin/keys", attrs.asdict(body))["secret"]
    click.echo("Every request needs a key from now on. Keep this one: it is not shown again.", err=True)
    click.echo(secret)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each key.")
@_place
def list_keys(settings: Settings, url: str | None, as_json: bool) -> None:
    """List the keys, revoked ones too: id, name, state, rights, limits."""
    from greenroom.schemas.wire.admin_upkeep import key_report

    if url is None:
        with _table(settings) as table:
            found = [attrs.asdict(key_report(record)) for record in table.list().records or ()]
    else:
        with closing(AdminClient(url)) as client:
            found = client.get("/admin/keys")["keys"]
    for key in found:
        click.echo(json.dumps(key) if as_json else _line(key, time.time()))
    if not found:
        click.echo("There are no keys: no request needs one.", err=True)


@command.command("revoke")
@click.argument("key", metavar="NAME|ID")
@_place
def revoke(settings: Settings, url: str | None, key: str) -> None:
    """Revoke a key: it opens nothing any more, and its running requests end."""
    if url is None:
        with _table(settings) as table:
            record = table.revoke(key, time.time())
            left = [each.name for each in table.list().records or () if each.opens(time.time())]
        name, digest = record.name, record.digest.hex()
        stays = [own[:2] for own in _own_keys() if own[2] == digest]
    else:
        with closing(AdminClient(url)) as client:
            before = client.get("/admin/keys")["keys"]  # this command may send the key that it revokes
            revoked = client.delete(f"/admin/keys/{quote(key, safe='')}")
        name = revoked["name"]
        left = [
            each["name"] for each in before if each["id"] != revoked["id"] and _is_open(each, time.time())
        ]
        stays = [(url, "its settings")] if revoked["of_server"] else []
    click.echo(for_terminal(f"{name} is revoked. {_who_is_left(left)}"), err=True)
    for place, setting in stays:
        told = f"{name} stays open at {place}: that server was started with the same key, by {setting}"
        raise click.ClickException(for_terminal(f"{told}. Start it without, and revoke is complete."))


@command.command("off")
@_place
def off(settings: Settings, url: str | None) -> None:
    """Revoke all keys, and let requests in without one again."""
    if url is None:
        with _table(settings) as table:
            table.switch_off(time.time())
        stays = [own[:2] for own in _own_keys()]
    else:
        with closing(AdminClient(url)) as client:
            stays = [(url, name) for name in client.delete("/admin/keys")["of_server"]]
    if not stays:
        click.echo("No request needs a key any more.", err=True)
    for place, setting in stays:
        told = f"{place} still needs a key: that of its setting {setting}, until it is started without"
        click.echo(for_terminal(f"The keys of the database are off, but the server at {told}."), err=True)


def _own_keys() -> list[tuple[str, str, str]]:
    """Return address, setting and digest of the keys that this user's running servers have of their own."""
    from greenroom.http.process.runtime_file import running_servers

    servers = [server for server in running_servers() if server.addresses]
    return [(server.addresses[0], *own) for server in servers for own in server.own_keys]


def _who_is_left(names: Sequence[str]) -> str:
    if names:
        return f"Requests still need a key; open: {', '.join(names)}."
    return "No other key is left, so every request is refused until `keys add` makes one, or `keys off`."


@contextmanager
def _table(settings: Settings) -> Iterator[KeysTable]:
    from greenroom.actors.store.connection import Connection
    from greenroom.actors.store.database_file import MEMORY, UnusableDatabase, default_path
    from greenroom.actors.store.keys_table import KeysTable
    from greenroom.schemas.problems import ProblemError

    if settings.db == MEMORY:
        raise click.ClickException(_MEMORY)
    name = str(default_path()) if settings.db is None else settings.db
    try:
        with closing(Connection(name)) as connection:
            yield KeysTable(connection)
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    except (UnusableDatabase, sqlite3.Error) as error:
        raise click.ClickException(f"db = {name!r}: {error}") from error


def _time(text: str, now: float) -> float:
    if (found := re.fullmatch(r"([0-9]{1,6})([mhdw])", text)) is not None:
        return now + int(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        detail = f"'{text}' is no time such as 2027-01-31, 2027-01-31T12:00+01:00, 12h or 30d"
        raise click.BadParameter(detail, param_hint="--expires") from error


def _is_open(key: Mapping[str, Any], now: float) -> bool:
    return key["revoked"] is None and (key["expires"] is None or now < key["expires"])


def _line(key: Mapping[str, Any], now: float) -> str:
    state = "open"
    if key["revoked"] is not None:
        state = f"revoked {_day(key['revoked'])}"
    elif key["expires"] is not None:
        state = f"{'expired' if key['expires'] <= now else 'until'} {_day(key['expires'])}"
    rights = [right for right in ("admin", "downloads", "local_only", "metrics") if key[right]]
    rights += [f"{name}: {', '.join(key[name])}" for name in ("models", "tools", "mcp") if key.get(name)]
    for name in ("requests", "tokens"):
        if (limit := key[f"{name}_per_minute"]) is not None:
            rights.append(f"{limit} {name}/min")
    if key.get("concurrent") is not None:
        rights.append(f"{key['concurrent']} at once")
    if key["priority"]:
        rights.append(f"priority {key['priority']}")
    return for_line("  ".join((key["id"], key["name"], state, *rights)))


def _day(unix_time: float) -> str:
    return datetime.fromtimestamp(unix_time).astimezone().isoformat(" ", "minutes")


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
def audit_command(url: str, *, follow: bool, as_json: bool, **filters: object) -> None:
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
            click.echo(json.dumps(entry) if as_json else _entry_line(entry))


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


def _entry_line(entry: Mapping[str, Any]) -> str:
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
def usage_command(since: str | None, key: str | None, as_json: bool, url: str) -> None:
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
