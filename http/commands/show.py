"""The command `greenroom show`: everything that is known about a model before it is loaded."""

from __future__ import annotations

import json
from typing import Any

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import BadSettingError, settings_options
from greenroom.http.terminal.option_types import MODEL
from greenroom.schemas.settings.settings import Settings

_SIZES = ("size_bytes", "required_bytes", "least_bytes")


@click.command()
@click.argument("model", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options("model_dir", "trust_remote_code", "model_settings", "profiles", "memory_bytes", "db")
@click.pass_obj
def command(local: LocalModels, settings: Settings, model: str, as_json: bool) -> None:
    """Show what is known about a model, and where its settings come from.

    MODEL is a name as in requests, a folder or a hub id. Nothing is loaded or downloaded. The last part has
    each setting with its value and where that came from: default, file, environment, flag, the model's own
    table, or a profile.

    \b
    Examples:
      greenroom show default
      greenroom show ~/models/Qwen3-4B-4bit --json
    """
    rows = local.describe(settings, model)
    if not rows:
        if (why := local.why_no_model(model)) is not None:
            raise BadSettingError(why)
        rows = local.describe(attrs.evolve(settings, models=(model,)), model)
    if as_json:
        click.echo(json.dumps(rows[0], indent=2))
        return
    for name, value in _facts(rows[0]).items():
        if value not in (None, [], {}):
            click.echo(f"{name:<16} {_shown(name, value)}")
    click.echo("\nsettings")
    for name, setting in rows[0]["settings"].items():
        if setting["value"] not in (None, []):
            click.echo(f"  {name:<16} {_shown(name, setting['value'])}  ({setting['origin']})")


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a description, with what it takes and gives, and without its settings."""
    capabilities = row["capabilities"] or {}
    modalities = {name: capabilities.get(name) for name in ("inputs", "outputs")}
    facts = {name: value for name, value in row.items() if name not in ("settings", "capabilities")}
    return {**facts, **modalities, "state": facts["state"] or "unknown without a server"}


def _shown(name: str, value: Any) -> str:
    if name in _SIZES:
        return f"{value:,} ({value / 1e9:.1f} GB)" if value >= 1e8 else f"{value:,}"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if isinstance(value, dict):
        text = ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, bool):
        text = "yes" if value else "no"
    return "".join(each if each.isprintable() else " " for each in text)
