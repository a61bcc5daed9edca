"""`greenroom serve`: the actor system with the HTTP server inside it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import click

from greenroom.http.commands.first_request import first_request, kind_of_default
from greenroom.http.commands.local_models import LocalModels
from greenroom.http.process.quick_imports import quick_imports
from greenroom.http.settings.sources import settings_options
from greenroom.schemas.settings import Settings

if TYPE_CHECKING:
    import trio

    from greenroom.actors.system import System
    from greenroom.http.process.shutdown import Shutdown
    from greenroom.schemas.capabilities import ModelType

FLAGS = tuple(field.name for field in attrs.fields(Settings) if field.name != "models")


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@settings_options(*FLAGS)
@click.pass_obj
def command(local: LocalModels, settings: Settings, models: tuple[str, ...]) -> None:
    """Serve models over HTTP to any OpenAI or Anthropic client.

    MODEL is a local folder or a hub id; the first is also called `default`. With none, the built-in demo
    model is served.

    \b
    Examples:
      greenroom serve
      greenroom serve ~/models/Qwen3-4B-4bit --port 9000
      greenroom serve org/large org/small --max-loaded-models 1 --log-format json
    """
    settings = attrs.evolve(settings, models=models or settings.models)
    with quick_imports():
        from greenroom.http.process.shutdown import Shutdown

        # Before anything else, so that no signal is missed.
        shutdown = Shutdown(settings.shutdown_timeout)

        from greenroom.http.process.log_configuration import configure_logging
        from greenroom.http.settings.database_location import locate_database
        from greenroom.http.settings.start_checks import check_at_start

        configure_logging(settings.log_format, settings.log_level)
        check_at_start(settings, local)
        settings = locate_database(settings)

        import trio

        from greenroom.http.process.descriptor_limit import raise_descriptor_limit
        from greenroom.http.transport.descriptors import needed_descriptors

        raise_descriptor_limit(needed_descriptors(settings.max_connections))
        import greenroom.http.server  # noqa: F401 (the rest of what serving needs)

    gc.freeze()
    trio.run(_serve, settings, shutdown)


async def _serve(settings: Settings, shutdown: Shutdown) -> None:
    import trio

    from greenroom.actors.system import open_system

    drain = trio.Event()
    shutdown.set_on_signal(drain)
    async with open_system(settings) as system:
        refusal = await _serve_until_drained(system, settings, drain)
    if refusal is not None:
        raise click.ClickException(f"cannot listen on {refusal.filename}: {refusal.strerror}")
    if system.hung:
        sys.stdout.flush()
        os._exit(0)


async def _serve_until_drained(system: System, settings: Settings, drain: trio.Event) -> OSError | None:
    """Serve until `drain` is set and what was accepted has ended; return why the address cannot be bound."""
    import structlog
    import trio

    from greenroom.http.server import serve

    log = structlog.get_logger(actor="http")
    async with trio.open_nursery() as nursery:
        try:
            addresses = await nursery.start(partial(serve, system, settings, drain=drain))
        except OSError as refusal:
            return refusal
        log.info("listening", addresses=list(addresses), models=list(settings.models), pid=os.getpid())
        if settings.log_format == "console":
            click.echo(welcome(addresses, settings, await kind_of_default(system.pool)))
        await drain.wait()
        log.info("draining", shutdown_timeout=settings.shutdown_timeout)
        await system.drain()
    return None


def welcome(addresses: Sequence[str], settings: Settings, kind: ModelType) -> str:
    """Return what a person needs next: the addresses, a line to paste, and where to go from here.

    Args:
        addresses: `http://127.0.0.1:8000`, and where else the server listens.
        kind: Of the first model.
    """
    own = [address.replace("//0.0.0.0:", "//127.0.0.1:") for address in addresses]
    reachable = list(dict.fromkeys(address.replace("//[::]:", "//127.0.0.1:") for address in own))
    address = reachable[0]
    served = ", ".join(settings.models) or "the built-in demo model"
    lines = [
        f"Greenroom serves {served} on {' and '.join(reachable)}",
        "",
        f"  {first_request(address, kind)}",
        "",
        f"OpenAI clients: base_url={address}/v1, any api_key. Ctrl-C stops.",
    ]
    if not settings.models:
        lines.append("For a real model: greenroom serve mlx-community/Qwen3-4B-4bit (or a local folder).")
    return "\n".join(lines)
