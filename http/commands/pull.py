"""The command `greenroom pull`: a model of the hub, fetched into its cache."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.commands.option_types import MODEL
from greenroom.http.settings.sources import settings_options
from greenroom.schemas.settings.settings import Settings


@click.command()
@click.argument("model", metavar="REPO[@REVISION]", type=MODEL)
@settings_options("trust_remote_code")
@click.pass_obj
def command(local: LocalModels, settings: Settings, model: str) -> None:
    """Fetch a model of the hub into its cache.

    Only the files that MLX needs are fetched. An interrupted fetch goes on where it was, every file is
    checked against the hub's hash, and two processes share a fetch. HF_TOKEN, HF_ENDPOINT, HF_HUB_CACHE and
    HF_HUB_OFFLINE mean what they mean to the hub's own tools. The folder is printed.

    \b
    Examples:
      greenroom pull mlx-community/Qwen3-4B-4bit
      greenroom pull mlx-community/Qwen3-4B-4bit@main
    """
    from greenroom.http.commands.downloads import ended_by_signals, sentence
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.terminal.download_display import DownloadLines, download_bar
    from greenroom.schemas.download import Download
    from greenroom.schemas.problems import ProblemError

    configure_command_logging(settings.log_level)

    def tell(download: Download) -> None:
        click.echo(sentence(download), err=True)

    display = download_bar() if sys.stderr.isatty() else nullcontext(DownloadLines().show)
    try:
        with ended_by_signals(), display as show:
            folder = local.fetch(model, settings, tell, show)
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    click.echo(folder)
