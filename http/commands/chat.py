"""`greenroom chat`: a conversation in the terminal, or one prompt through a pipe."""

from __future__ import annotations

import sys

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import settings_options
from greenroom.schemas.settings import Settings

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
@click.argument("model", required=False)
@click.option("--system", "instructions", metavar="TEXT", help="Instructions for the model.")
@click.option("--thinking/--no-thinking", default=None, help="Whether the model thinks first, if it can.")
@click.option(
    "--image", "images", metavar="FILE", multiple=True, help="An image or a PDF that the first line is about."
)
@click.option("--url", help="Talk to this OpenAI-compatible server instead of loading a model here.")
@settings_options(*FLAGS)
@click.pass_obj
def command(
    local: LocalModels,
    settings: Settings,
    model: str | None,
    instructions: str | None,
    thinking: bool | None,
    images: tuple[str, ...],
    url: str | None,
) -> None:
    """Talk to a model in the terminal, or pipe a prompt through it.

    MODEL is a local folder or a hub id; with none, the first of the settings file or the built-in demo model.
    If stdin is not a terminal, all of it is the prompt, and only the answer is printed.

    \b
    Examples:
      greenroom chat ~/models/Qwen3-4B-4bit
      git diff | greenroom chat --system "Write a commit message." > message.txt
      echo "What is this?" | greenroom chat ~/models/Qwen3-VL-4B --image photo.jpg
      greenroom chat --url http://127.0.0.1:8000
    """
    from greenroom.http.process.log_configuration import configure_logging
    from greenroom.http.settings.start_checks import check_at_start

    settings = attrs.evolve(settings, models=(model,) if model else settings.models)
    # A conversation shares the terminal with the log.
    configure_logging("console", "debug" if settings.log_level == "debug" else "error")
    if url is None:
        check_at_start(settings, local)

    import trio
    from rich.console import Console

    from greenroom.http.terminal.answer_sources import open_local_model, open_server
    from greenroom.http.terminal.session import answer_once, run_conversation
    from greenroom.http.terminal.shown_files import CannotShowError, read_shown_file

    try:
        shown = tuple(read_shown_file(image) for image in images)
    except CannotShowError as problem:
        raise click.UsageError(str(problem)) from problem

    options = {} if thinking is None else {"enable_thinking": thinking}
    overrides = {name: value for name in DEFAULTS if (value := getattr(settings, name)) is not None}
    opening = open_server(url, model, overrides, options) if url else open_local_model(settings, options)
    if sys.stdin.isatty():
        status = trio.run(run_conversation, opening, Console(), instructions, shown)
    else:
        status = trio.run(answer_once, opening, _read_prompt(), instructions, shown)
    sys.exit(status)


def _read_prompt() -> str:
    prompt = sys.stdin.read()
    if not prompt.strip():
        raise click.UsageError("there is nothing on stdin to answer")
    return prompt
