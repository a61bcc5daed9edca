"""The command `greenroom show`: everything that is known about a model before it is loaded."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import BadSettingError, settings_options
from greenroom.http.terminal.joining import listing_server, server_options
from greenroom.http.terminal.option_types import MODEL
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.settings import Settings

_NOT_SHOWN = ("settings", "capabilities", "object", "created", "owned_by", "name")
_SIZES = ("size_bytes", "required_bytes", "least_bytes")


@click.command()
@click.argument("model", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
@settings_options("model_dir", "trust_remote_code", "model_settings", "profiles", "memory_bytes", "db")
@click.pass_obj
def command(
    local: LocalModels, settings: Settings, model: str, as_json: bool, url: str | None, stays_local: bool
) -> None:
    """Show what is known about a model, and where its settings come from.

    MODEL is a name as in requests, a folder or a hub id. If a server runs on this machine that has the model,
    it tells this, and the model's state. Nothing is loaded or downloaded. The last part has
    each setting with its value and where that came from: default, file, environment, flag, the model's own
    table, or a profile.

    \b
    Examples:
      greenroom show default
      greenroom show ~/models/Qwen3-4B-4bit --json
    """
    rows = _served(settings, url, model, stays_local=stays_local) or local.describe(settings, model)
    if not rows:
        if (why := local.why_no_model(model)) is not None:
            raise BadSettingError(why)
        rows = local.describe(attrs.evolve(settings, models=(model,)), model)
    if as_json:
        click.echo(json.dumps(rows[0], indent=2))
        return
    settings_of_model = rows[0]["settings"]
    width = max(map(len, (*_facts(rows[0]), *settings_of_model)))
    for name, value in _facts(rows[0]).items():
        if value not in (None, [], {}):
            click.echo(f"{name:<{width}} {_shown(name, value)}")
    click.echo("\nsettings")
    for name, setting in settings_of_model.items():
        if setting["value"] not in (None, [], ()):
            click.echo(f"  {name:<{width}} {_shown(name, setting['value'])}  ({setting['origin']})")


def _served(settings: Settings, url: str | None, model: str, *, stays_local: bool) -> list[dict[str, Any]]:
    """Return the description of a model by a running server; none if it does not serve it, or none runs."""
    server = listing_server(settings, url, stays_local=stays_local)
    found = None if server is None else server.get(f"/v1/models/{quote(model)}", absent_ok=True)
    if url is not None and found is None:
        raise click.ClickException(f"the server at {url} has no model '{model}'")
    return [] if found is None else [found]


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a description, with what it takes and gives, and without its settings."""
    capabilities = row["capabilities"] or {}
    modalities = {name: capabilities.get(name) for name in ("inputs", "outputs")}
    facts = {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    return {**facts, **modalities, "state": facts["state"] or "unknown without a server"}


def _shown(name: str, value: Any) -> str:
    if name in _SIZES:
        return f"{size_text(value)} ({value:,} bytes)"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if isinstance(value, dict):
        text = ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, bool):
        text = "yes" if value else "no"
    return "".join(each if each.isprintable() else " " for each in text)
