"""The command `greenroom chat`: a conversation in the terminal, or one prompt through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.commands.setup import fetch_first_model, is_asked
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.joining import choose_server, server_options
from greenroom.http.terminal.option_types import MODEL, UTF8_TEXT
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.http.terminal.answer_sources import AnswerSource

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
    from greenroom.http.commands.downloads import fetch_missing
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.settings.start_checks import check_at_start

    if demo and (model or url):
        raise click.UsageError("--demo is a model of this command: name no other, and no server")
    local: LocalModels = context.obj
    settings = attrs.evolve(settings, models=() if demo else (model,) if model else settings.models)
    configure_command_logging(settings.log_level)
    server = choose_server(settings, model, ("text", "vision"), url, stays_local=stays_local or demo)
    if server is None:
        if is_asked(settings, demo=demo):
            chosen = fetch_first_model(local, settings, context.params["config"])
            settings = attrs.evolve(settings, models=() if chosen is None else (chosen,))
        check_at_start(settings, local)
        fetch_missing(local, settings)

    talk = _conversation(instructions, images)
    options = {} if thinking is None else {"enable_thinking": thinking}

    from greenroom.http.process.command_run import run_command, run_with_system
    from greenroom.http.terminal.answer_sources import local_answers, open_server

    if server is None:
        known = local.describe(settings, "default")
        length = any(each["settings"]["max_tokens"]["value"] is not None for each in known)
        run_with_system(
            settings, lambda system: talk(local_answers(system.pool, options, sets_length=length))
        )

    async def talk_to_server() -> int:
        overrides = {name: value for name in DEFAULTS if (value := getattr(settings, name)) is not None}
        async with open_server(server, overrides, options) as answer:
            return await talk(answer)

    run_command(talk_to_server)


def _conversation(
    instructions: str | None, images: tuple[str, ...]
) -> Callable[[AnswerSource], Awaitable[int]]:
    """Return the function to run with a source of responses: a conversation, or the one prompt on stdin.

    Raises:
        UsageError: An image cannot be read, or stdin holds no prompt.
    """
    from rich.console import Console

    from greenroom.http.terminal.session import answer_once, run_conversation
    from greenroom.http.terminal.shown_files import CannotShowError, read_shown_file
    from greenroom.http.terminal.standard_streams import read_text

    try:
        shown = tuple(read_shown_file(image) for image in images)
    except CannotShowError as problem:
        raise click.UsageError(str(problem)) from problem
    if sys.stdin is not None and sys.stdin.isatty():
        return partial(run_conversation, console=Console(), instructions=instructions, shown=shown)
    return partial(answer_once, prompt=read_text(), instructions=instructions, shown=shown)
