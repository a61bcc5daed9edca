"""The command `greenroom pull`: a model of the hub, fetched into its cache."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.admin_client import check_url
from greenroom.http.terminal.option_types import MODEL
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.http.terminal.admin_client import AdminClient
    from greenroom.http.terminal.download_display import Show


@click.command()
@click.argument("model", metavar="REPO[@REVISION]", type=MODEL)
@click.option(
    "--url", callback=check_url, help="Server that fetches (default: a running one of this machine)."
)
@click.option("--no-probe", is_flag=True, help="Do not let a server probe the model.")
@settings_options("trust_remote_code")
@click.pass_obj
def command(local: LocalModels, settings: Settings, model: str, url: str | None, no_probe: bool) -> None:
    """Fetch a model of the hub into its cache.

    Only the files that MLX needs are fetched. An interrupted fetch goes on where it was, every file is
    checked against the hub's hash, and two processes share a fetch. HF_TOKEN, HF_ENDPOINT, HF_HUB_CACHE and
    HF_HUB_OFFLINE mean what they mean to the hub's own tools. If a server of this user runs on this machine
    and these are the same there, it fetches, and then probes the model if that fits beside the loaded ones,
    else after its first load. Without a server the folder is printed.

    \b
    Examples:
      greenroom pull mlx-community/Qwen3-4B-4bit
      greenroom pull mlx-community/Qwen3-4B-4bit@main --no-probe
    """
    from greenroom.actors.downloads.probe_after_pull import want_probe
    from greenroom.http.commands.downloads import ended_by_signals, sentence
    from greenroom.http.process.log_configuration import configure_command_logging
    from greenroom.http.terminal.admin_client import find_server, hub_differs
    from greenroom.http.terminal.download_display import DownloadLines, download_bar
    from greenroom.schemas.download import Download
    from greenroom.schemas.problems import ProblemError

    configure_command_logging(settings.log_level)

    def tell(download: Download) -> None:
        click.echo(sentence(download), err=True)

    display = download_bar() if sys.stderr.isatty() else nullcontext(DownloadLines().show)
    server = find_server(url, settings)
    if server is not None and url is None and (differs := hub_differs(server.url)) is not None:
        click.echo(f"the server at {server.url} has {differs}: fetching here (--url lets it fetch)", err=True)
        server = None
    with ended_by_signals(), display as show:
        if server is not None:
            _pull_by_server(server, model, not no_probe, show)
            return
        try:
            folder = local.fetch(model, settings, tell, show)
        except ProblemError as error:
            raise click.ClickException(error.problem.detail) from error
    want_probe(model, wanted=not no_probe)
    click.echo(folder)


def _pull_by_server(server: AdminClient, model: str, probe: bool, show: Show) -> None:
    """Let a server fetch a model, and show its progress; the fetch goes on if this process ends.

    Raises:
        ClickException: It has failed, or was cancelled.
    """
    from greenroom.schemas.protocols.download_protocol import DownloadProgress

    click.echo(f"the server at {server.url} fetches {model}", err=True)
    state, problem = "cut", None
    for _, event in server.stream("/admin/pull", {"model": model, "probe": probe}):
        state, problem = event["state"], event["problem"]
        figures = (event["files"], event["bytes"], event["received"], event["bytes_per_second"])
        show(DownloadProgress(event["stage"], *figures))
    if state != "completed":
        raise click.ClickException(problem or f"the fetch was {state}")
