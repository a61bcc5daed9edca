"""The command `greenroom chat`: a conversation in the terminal, or one prompt through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import click

from greenroom.http.commands.command_server import server_of_command
from greenroom.http.commands.local_models import LocalModels
from greenroom.http.commands.setup import fetch_first_model, is_asked
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.running_server import server_options
from greenroom.http.terminal.streams import MODEL, UTF8_TEXT
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.http.terminal.answer_sources import AnswerSource
    from greenroom.http.terminal.chosen_server import ChosenServer
    from greenroom.http.terminal.session import Shown

DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
FLAGS = (
    "device",
    "dtype",
    "kv_bits",
    "max_context",
    "speculation",
    "draft_model",
    "trust_remote_code",
    *DEFAULTS,
)


@click.command()
@click.argument("model", required=False, type=MODEL)
@click.option("--system", "instructions", type=UTF8_TEXT, help="Instructions for the model.")
@click.option(
    "--thinking/--no-thinking", default=None, help="Let the model reason before it answers, if it can."
)
@click.option(
    "--image", "images", metavar="FILE", multiple=True, help="Image or PDF to send with the first message."
)
@click.option("--demo", is_flag=True, help="Talk to the built-in demo model, and ask for no other.")
@server_options
@settings_options(*FLAGS)
@click.pass_context
def command(
    context: click.Context,
    settings: Settings,
    model: str | None,
    instructions: str | None,
    thinking: bool | None,
    images: tuple[str, ...],
    demo: bool,
    url: str | None,
    stays_local: bool,
) -> None:
    """Talk to a model in the terminal, or pipe a prompt through it.

    MODEL is a local folder or a hub id; with none, the first of the settings file. Without that, a terminal
    offers models that fit this machine; without a terminal or the hub, the built-in demo model answers.
    If stdin is not a terminal, all of it is the prompt, and only the answer is printed.

    \b
    Examples:
      greenroom chat ~/models/Qwen3-4B-4bit
      git diff | greenroom chat --system "Write a commit message." > message.txt
      echo "What is this?" | greenroom chat ~/models/Qwen3-VL-4B --image photo.jpg
      greenroom chat --url http://127.0.0.1:8000
    """
    if demo and (model or url):
        raise click.UsageError("--demo is a model of this command: name no other, and no server")
    local: LocalModels = context.obj
    shown = _read_images(images)  # before a download: a name may be wrong

    def name_first(settings: Settings) -> Settings:
        if not is_asked(settings, demo=demo):
            return settings
        first = fetch_first_model(local, settings, context.params["config"])
        return attrs.evolve(settings, models=() if first is None else (first,))

    server = server_of_command(
        local,
        attrs.evolve(settings, models=()) if demo else settings,
        model,
        ("text", "vision"),
        url,
        stays_local=stays_local or demo,
        place="MODEL",
        name_first=name_first,
    )
    talk = _conversation(instructions, shown)
    options = {} if thinking is None else {"enable_thinking": thinking}

    # A server of its own has them as its settings.
    own = () if server.running is None else DEFAULTS
    overrides = {name: value for name in own if (value := getattr(settings, name)) is not None}

    from greenroom.http.terminal.answer_sources import open_server

    async def talk_to(chosen: ChosenServer) -> int:
        async with open_server(chosen, overrides, options) as answer:
            return await talk(answer)

    server.run(talk_to)


def _read_images(images: tuple[str, ...]) -> Shown:
    if not images:
        return ()

    from greenroom.http.terminal.answer_sources import CannotShowError, read_shown_file

    try:
        return tuple(read_shown_file(image) for image in images)
    except CannotShowError as problem:
        raise click.UsageError(str(problem)) from problem


def _conversation(instructions: str | None, shown: Shown) -> Callable[[AnswerSource], Awaitable[int]]:
    """Return the function to run with a source of responses: a conversation, or the one prompt on stdin.
    Raises UsageError: stdin holds no prompt.
    """
    from rich.console import Console

    from greenroom.http.terminal.session import answer_once, run_conversation
    from greenroom.http.terminal.streams import read_text

    if sys.stdin is not None and sys.stdin.isatty():
        return partial(run_conversation, console=Console(), instructions=instructions, shown=shown)
    return partial(answer_once, prompt=read_text(), instructions=instructions, shown=shown)
