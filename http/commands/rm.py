"""The command `greenroom rm`: deletion of a model's files."""

from __future__ import annotations

import click

from greenroom.http.settings.sources import settings_options
from greenroom.http.terminal.admin_client import check_url
from greenroom.http.terminal.option_types import MODEL
from greenroom.schemas.settings.settings import Settings


@click.command()
@click.argument("model", metavar="MODEL[@REVISION]", type=MODEL)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--url", callback=check_url, help="Server that unloads the model first (default: a running one)."
)
@settings_options("model_dir")
def command(settings: Settings, model: str, yes: bool, url: str | None) -> None:
    """Delete a model's files, from the hub's cache or from a --model-dir.

    MODEL is its own id, as `greenroom models` lists it; nothing outside of these folders is deleted. A server
    that runs on this machine unloads the model first, and refuses while requests use it.

    \b
    Examples:
      greenroom rm mlx-community/Qwen3-4B-4bit
      greenroom rm mlx-community/Qwen3-4B-4bit@v1 --yes
    """
    from greenroom.actors.downloads.deleting import find_removal
    from greenroom.http.terminal.admin_client import find_server
    from greenroom.schemas.problems import ProblemError
    from greenroom.schemas.protocols.download_protocol import size_text

    try:
        removal = find_removal(model, settings)
        what = f"{model}, {size_text(removal.nbytes)} in {removal.folder}"
        if not yes:
            click.confirm(f"Delete {what}?", abort=True, err=True)
        if (server := find_server(url, settings, sure=True)) is not None:
            freed = server.post("/admin/models/delete", {"model": model})["freed_bytes"]
        else:
            with removal.claim():
                freed = removal.remove()
    except ProblemError as error:
        raise click.ClickException(error.problem.detail) from error
    click.echo(f"deleted {model}: {size_text(freed)} are free again", err=True)
