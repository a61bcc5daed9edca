"""The command `greenroom setup`, and the offer of a first model where a command has none."""

from __future__ import annotations

import os
import shutil
import sys
import termios
import tty
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.process.exit_status import program_name
from greenroom.http.settings.sources import BadSettingError, settings_options, write_settings
from greenroom.http.terminal.streams import without_home
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.schemas.models.model_description import MachineReport


@attrs.frozen
class SuggestedModel:
    """A model that people run on machines of one size.

    Args:
        gigabytes: Size of its weights, computed from the number of its parameters.
        architecture: Name in `config.json`.
        sees: True if it takes images.
    """

    memory: int
    hub_id: str
    gigabytes: float
    architecture: str
    sees: bool = False


_MODELS = (
    SuggestedModel(8, "mlx-community/Qwen3-4B-4bit", 2.3, "qwen3"),
    SuggestedModel(8, "mlx-community/Llama-3.2-3B-Instruct-4bit", 1.8, "llama"),
    SuggestedModel(16, "mlx-community/Qwen3-8B-4bit", 4.6, "qwen3"),
    SuggestedModel(16, "mlx-community/Qwen3.5-9B-4bit", 5.6, "qwen3_5", sees=True),
    SuggestedModel(32, "mlx-community/gpt-oss-20b-MXFP4-Q8", 12.1, "gpt_oss"),
    SuggestedModel(32, "mlx-community/Qwen3-14B-4bit", 8.3, "qwen3"),
    SuggestedModel(32, "mlx-community/gemma-4-26b-a4b-it-4bit", 15.0, "gemma4", sees=True),
    SuggestedModel(64, "mlx-community/Qwen3-30B-A3B-4bit", 17.2, "qwen3_moe"),
    SuggestedModel(64, "mlx-community/Qwen3.5-35B-A3B-4bit", 20.0, "qwen3_5_moe", sees=True),
    SuggestedModel(64, "mlx-community/Qwen3-32B-4bit", 18.4, "qwen3"),
    SuggestedModel(128, "mlx-community/gpt-oss-120b-MXFP4-Q8", 63.0, "gpt_oss"),
    SuggestedModel(128, "mlx-community/GLM-4.5-Air-4bit", 60.0, "glm4_moe"),
    SuggestedModel(128, "mlx-community/Qwen3.5-122B-A10B-4bit", 69.0, "qwen3_5_moe", sees=True),
)
_ROOM = {8: 4.5, 16: 9.0, 32: 18.0, 64: 41.0, 128: 82.0}
SUGGESTED = {
    memory: (room, tuple(model for model in _MODELS if model.memory == memory))
    for memory, room in _ROOM.items()
}
"""By a Mac's memory in GB: the GB that models may have there, and the models, the one to take first.

`make reference` writes notes/which-model.md from it.
"""

_SMALLEST = min(_MODELS, key=lambda model: model.gigabytes)
_SHARE = 0.85  # Largest share of the memory for models that weights may take; the rest is for conversations
_KEYS = "123456789"
_USUAL_FOLDERS = ("~/.lmstudio/models", "~/models")
"""Folders in which people keep models; the first is LM Studio's."""
_NONE = "none"


def suggestions(machine: MachineReport, limit: int) -> tuple[SuggestedModel, ...]:
    """Return the models that fit a machine, the one to take first; on a CPU the smallest. `limit`: bytes that
    models may have.
    """
    sizes = [memory for memory, (room, _) in SUGGESTED.items() if limit >= room * 1e9]
    models = SUGGESTED[max(sizes, default=8)][1]
    if machine.device.startswith("cpu"):
        models = (_SMALLEST, *(model for model in models if model is not _SMALLEST))
    return tuple(model for model in models if model.gigabytes * 1e9 <= limit * _SHARE)


def is_asked(settings: Settings, *, demo: bool) -> bool:
    """Return whether to offer a model: none is named or set, and somebody sits at a terminal."""
    named = demo or settings.models or settings.model_dir or settings.default
    return not named and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def fetch_first_model(local: LocalModels, settings: Settings, config: Path | None) -> str | None:
    """Offer models that fit this machine, fetch the chosen one, and remember it in the settings file.

    Returns:
        Its hub id; None for the demo model, also if the hub cannot be reached, or nothing fits.

    Raises:
        ClickException: The fetch fails.
    """
    if not (hub_id := choose_model(local, settings)):
        return None

    from greenroom.http.commands.downloads import fetch_missing

    fetch_missing(local, attrs.evolve(settings, models=(hub_id,)))
    try:
        path = write_settings(config, {"models": (hub_id,)})
        shown = without_home(str(path))
        say(f"From now on it is the model of {shown}; `{program_name()} setup` asks again.\n")
    except BadSettingError as problem:
        say(f"It is not remembered: {problem.format_message()}\n")
    return hub_id


def choose_model(local: LocalModels, settings: Settings) -> str | None:
    """Offer models that fit this machine by one keypress; return the hub id of the chosen one.

    Returns:
        Empty for the demo model; None if none could be offered.
    """
    machine = local.examine_machine(settings.device)
    limit = machine.limit if settings.memory_bytes is None else settings.memory_bytes
    models = () if machine.problem else suggestions(machine, limit)
    missing = local.find_missing([model.hub_id for model in models])
    sizes, rate = local.survey_hub(missing)
    offered = [model for model in models if model.hub_id in sizes or model.hub_id not in missing]
    if not offered:
        return None
    device = machine.device.replace("cpu", "CPU")
    say(f"No model is named yet. Here models may have {size_text(limit)} of memory on the {device}:\n")
    width = max(len(model.hub_id) for model in offered)
    for key, model in zip(_KEYS, offered, strict=False):
        cost = _cost(sizes[model.hub_id], rate) if model.hub_id in sizes else "is on this machine"
        say(f"  {key}  {model.hub_id:<{width}}  {cost}{', sees images' if model.sees else ''}")
    say("  d  the built-in demo model, which only shows that the server works\n")
    if machine.device.startswith("cpu"):
        say("A CPU computes some tens of times slower than a GPU, so the smallest comes first.")
    keys = _KEYS[: len(offered)]
    pressed = press(f"Fetch which? [{'/'.join(keys)}/d, Enter is 1] ", f"{keys}d", "1")
    return "" if pressed == "d" else offered[int(pressed) - 1].hub_id


def _cost(nbytes: int, rate: float) -> str:
    if rate <= 0:
        return size_text(nbytes)
    minutes = nbytes / rate / 60
    time = "less than a minute" if minutes < 1 else f"about {minutes:.0f} minute{'s' * (round(minutes) != 1)}"
    return f"{size_text(nbytes)}, {time} at {rate / 1e6:.1f} MB/s"


def press(question: str, keys: Sequence[str], usual: str) -> str:
    """Return the key that answers a question; Enter is the usual one.

    Raises:
        Abort: The user ends the input.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # before the question, since it drops what was typed before
    try:
        click.echo(question, nl=False, err=True)
        while (typed := os.read(terminal, 32)) not in (b"", b"\x04"):
            text = "" if typed.startswith(b"\x1b") else typed.decode("ascii", "ignore").lower()
            for key in text.replace("\r", usual).replace("\n", usual):
                if key in keys:
                    say(key)
                    return key
        raise click.Abort
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def say(text: str) -> None:
    """Print a line to the terminal, beside what a command writes."""
    click.echo(text, err=True)


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
    if sys.platform != "darwin" and shutil.which("systemctl") is None:
        say(f"This machine has neither systemd nor launchd: `{program_name()} serve` starts the server.")
    elif press("Start the server now and at every login? [y/n, Enter is n] ", "yn", "n") == "y":
        service = cast(
            "click.Group", cast("click.Group", context.find_root().command).get_command(context, "service")
        )
        context.invoke(service.commands["install"], arguments=())
    else:
        say(f"`{program_name()} serve` starts the server.")


def _choose(local: LocalModels, settings: Settings, config: Path | None) -> None:
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
