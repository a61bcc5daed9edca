"""The command `greenroom setup`: three questions, whose answers are kept in the settings file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from greenroom.http.commands import service
from greenroom.http.commands.local_models import LocalModels
from greenroom.http.process.program_name import program_name
from greenroom.http.settings.settings_file import write_settings
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.first_model import choose_model, press, say
from greenroom.schemas.settings.settings import Settings

_USUAL_FOLDERS = ("~/.lmstudio/models", "~/models")
"""Folders in which people keep models; the first is LM Studio's."""
_NONE = "none"


@click.command()
@settings_options("device", "memory_bytes")
@click.pass_context
def command(context: click.Context, settings: Settings) -> None:
    """Choose a model, a folder of models, and whether the server starts at login.

    Models that fit this machine are offered, with what they cost to fetch. The answers are kept in the
    settings file; all else in it stays.

    \b
    Examples:
      greenroom setup
    """
    from greenroom.http.process.log_configuration import configure_command_logging

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("setup asks questions: call it at a terminal, or write the settings file")
    configure_command_logging(settings.log_level)
    local: LocalModels = context.obj
    config: Path | None = context.params["config"]
    if settings.models:
        say(f"Now it serves {', '.join(settings.models)}.")
    if not settings.models or press("Choose another model? [y/n, Enter is n] ", "yn", "n") == "y":
        _choose(local, settings, config)
    _name_folder(settings, config)
    if not service.is_possible():
        say(f"This machine has neither systemd nor launchd: `{program_name()} serve` starts the server.")
    elif press("Start the server now and at every login? [y/n, Enter is n] ", "yn", "n") == "y":
        context.invoke(service.install, arguments=())
    else:
        say(f"`{program_name()} serve` starts the server.")


def _choose(local: LocalModels, settings: Settings, config: Path | None) -> None:
    import attrs

    from greenroom.http.commands.downloads import fetch_missing

    hub_id = choose_model(local, settings)
    if hub_id is None:
        say(
            "No model can be offered: the hub cannot be reached, or none of the usual ones fits this machine."
        )
        return
    models = (hub_id,) if hub_id else ()
    fetch_missing(local, attrs.evolve(settings, models=models))
    say(f"{write_settings(config, {'models': models})}: the model is {hub_id or 'the built-in demo model'}.")


def _name_folder(settings: Settings, config: Path | None) -> None:
    found = [folder for folder in _USUAL_FOLDERS if os.path.isdir(os.path.expanduser(folder))]
    usual = (*settings.model_dir, *found, _NONE)[0]
    while True:
        folder = click.prompt("Folder of models that you have already", default=usual, err=True).strip()
        if folder == _NONE or os.path.isdir(os.path.expanduser(folder)):
            break
        say(f"There is no folder '{folder}'; '{_NONE}' names none.")
    if (wanted := () if folder == _NONE else (folder,)) != settings.model_dir[:1]:
        path = write_settings(config, {"model_dir": (*wanted, *settings.model_dir[1:])})
        say(f"{path}: model_dir is {', '.join(wanted) or _NONE}.")
