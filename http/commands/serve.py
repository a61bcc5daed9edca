"""The command `greenroom serve`: the actor system with its HTTP server."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from greenroom.http.commands.local_models import LocalModels
from greenroom.http.commands.setup import fetch_first_model, is_asked
from greenroom.http.process.deferred_imports import deferred_imports
from greenroom.http.process.exit_status import ExitStatus, program_name
from greenroom.http.settings.check_value import FIELDS
from greenroom.http.settings.sources import GroupedCommand, read_settings, settings_options
from greenroom.http.supervision.heartbeat import Inheritance, inherit
from greenroom.http.terminal.streams import MODEL, first_request, kind_of_default, served_ids
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    import trio

    from greenroom.actors.system import System
    from greenroom.http.process.shutdown import Shutdown
    from greenroom.http.settings.reloader import Reloader
    from greenroom.http.supervision.heartbeats import Watchers
    from greenroom.schemas.models.capabilities import ModelType

FLAGS = tuple(name for name in FIELDS if name != "models")


@click.command(cls=GroupedCommand)
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=MODEL)
@settings_options(*FLAGS)
@click.option(
    "--supervised",
    is_flag=True,
    help="Run the server as the child of a small process that starts it again when it crashes or hangs.",
)
@click.option("--demo", is_flag=True, help="Serve the built-in demo model, and ask for no other.")
@click.pass_obj
def command(
    local: LocalModels, settings: Settings, models: tuple[str, ...], supervised: bool, demo: bool
) -> None:
    """Serve models over HTTP to any client of OpenAI, Anthropic or Ollama.

    MODEL is a local folder or a hub id; the first is also called `default`. With none, here or in the
    settings file, a terminal offers models that fit this machine; without a terminal or the hub, or with
    --demo, the built-in demo model is served. What is not on this machine yet is downloaded first.

    \b
    Examples:
      greenroom serve
      greenroom serve ~/models/Qwen3-4B-4bit --port 9000
      greenroom serve org/large org/small --max-loaded-models 1 --log-format json
    """
    context = click.get_current_context()
    settings = settings_of(context)
    inherited = inherit(os.environ)
    if inherited.parent is None and not inherited.sockets and is_asked(settings, demo=demo):
        from greenroom.http.process.log_configuration import configure_command_logging

        configure_command_logging(settings.log_level)
        chosen = fetch_first_model(local, settings, context.params["config"])
        settings = settings_of(context)
        if chosen is not None and not settings.models:  # the settings file could not be written
            context.params["models"] = (chosen,)
            settings = settings_of(context)
    if supervised and inherited.parent is None:
        from greenroom.http.supervision.supervisor import supervise

        sys.exit(supervise(settings, inherited.sockets))
    _run(context, settings, local, inherited)


def _run(context: click.Context, settings: Settings, local: LocalModels, inherited: Inheritance) -> None:
    """Import what serving needs, serve until the end, and exit with a status unless all is well."""
    with deferred_imports():
        from greenroom.http.process.shutdown import Shutdown
        from greenroom.http.supervision.heartbeats import Watchers

        # Before anything else, so that no signal is missed.
        shutdown = Shutdown(settings.shutdown_timeout)
        watchers = Watchers(inherited, os.environ)

        from greenroom.http.commands.downloads import fetch_missing
        from greenroom.http.process.log_configuration import configure_logging
        from greenroom.http.settings.start_checks import check_at_start, check_keys, locate_database

        configure_logging(settings.log_format, settings.log_level)
        check_at_start(settings, local)
        if not shutdown.has_begun:
            fetch_missing(local, settings)
        settings = locate_database(settings)
        check_keys(settings)

        import trio

        from greenroom.http.operations.trace_export import start_exporting
        from greenroom.http.process.shutdown import WEIGHT_FILES, raise_descriptor_limit, switch_often
        from greenroom.http.transport.accept_loop import needed_descriptors

        raise_descriptor_limit(max(WEIGHT_FILES, needed_descriptors(settings.max_connections)))
        switch_often()
        end_export = start_exporting(os.environ)
        import greenroom.http.app  # noqa: F401 (the rest of what serving needs)

    gc.freeze()

    def read() -> Settings:
        again = settings_of(context)
        check_at_start(again, local)
        return locate_database(again)

    status = trio.run(_serve, settings, read, shutdown, watchers)
    end_export()
    if status is not ExitStatus.DONE:
        # The interpreter's normal shutdown would abort after a hung thread or a lost device.
        sys.stdout.flush()
        os._exit(status)


def settings_of(context: click.Context) -> Settings:
    """Return the settings of the server that a command line starts, as file and variables are now."""
    flags = {name: context.params[name] for name in FLAGS if context.params[name] is not None}
    settings = read_settings(context.params["config"], flags)
    if context.params["demo"]:
        if context.params["models"]:
            raise click.UsageError("--demo serves the built-in demo model: name no other, or leave it out")
        return attrs.evolve(settings, models=())
    if not (models := context.params["models"]):
        return settings
    return attrs.evolve(settings, models=models, origins=(*settings.origins, ("models", "flag")))


async def _serve(
    settings: Settings, read: Callable[[], Settings], shutdown: Shutdown, watchers: Watchers
) -> ExitStatus:
    import trio

    from greenroom.actors.system import open_system
    from greenroom.http.process.log_configuration import set_log_level
    from greenroom.http.process.runtime_file import describe_unusable_address
    from greenroom.http.settings.reloader import Reloader

    drain = trio.Event()
    shutdown.set_on_signal(drain)
    watchers.follow(trio.lowlevel.current_trio_token())
    async with open_system(settings, activity=watchers.activity, left_out=watchers.left_out) as system:
        reloader = Reloader(settings, read, system.reload)
        reloader.tell(lambda now: set_log_level(now.log_level))
        end = await _serve_until_drained(system, settings, reloader, drain, shutdown, watchers)
    if isinstance(end, OSError):
        raise click.ClickException(describe_unusable_address(end))
    return ExitStatus.FORCED if system.hung and end is ExitStatus.DONE else end


async def _serve_until_drained(
    system: System,
    settings: Settings,
    reloader: Reloader,
    drain: trio.Event,
    shutdown: Shutdown,
    watchers: Watchers,
) -> ExitStatus | OSError:
    """Serve until `drain` is set or the device is lost, and then until accepted requests have ended.

    Returns:
        The exit status, or the error if an address cannot be bound.
    """
    import trio

    from greenroom.http.app import serve
    from greenroom.http.guard.keys import settings_keys
    from greenroom.http.process.runtime_file import runtime_file
    from greenroom.schemas.logs import get_logger
    from greenroom.schemas.protocols.store_protocol import DescribeStore, StoreStatus
    from greenroom.schemas.settings.caller import new_secret

    log, key = get_logger(actor="http"), new_secret()
    async with trio.open_nursery() as nursery:
        try:
            serving = partial(serve, system, settings, drain=drain, reloader=reloader, session_key=key)
            addresses = await nursery.start(partial(serving, sockets=watchers.sockets))
        except OSError as refusal:
            return refusal
        await nursery.start(_obey_hang_ups, reloader, drain, watchers.has_parent)
        own_keys = tuple((record.name, record.digest.hex()) for record in settings_keys(settings))
        with runtime_file(addresses, key, settings.tls_certificate or "", own_keys):
            watchers.ready(addresses)
            models = await served_ids(system.pool, settings)
            log.info("listening", addresses=list(addresses), models=models, pid=os.getpid())
            if settings.log_format == "console" and watchers.is_first:
                store = await system.refs.store.ask(DescribeStore(), StoreStatus)
                stores = isinstance(store, StoreStatus) and store.problem is None
                click.echo(welcome(addresses, settings, await kind_of_default(system.pool), stores=stores))
            await _wait_for_either(drain, system.device_lost)
        watchers.ending()
        lost = not drain.is_set()
        if lost:
            shutdown.end_within(system.seconds_to_end, ExitStatus.DEVICE_LOST)
        log.info("draining", shutdown_timeout=system.seconds_to_end)
        await system.drain()
        if lost:
            # Listening until now let probes and clients learn why requests are refused.
            drain.set()
            nursery.cancel_scope.deadline = trio.current_time() + system.remaining() / 2
    return ExitStatus.DEVICE_LOST if lost else ExitStatus.DONE


async def _obey_hang_ups(
    reloader: Reloader, drain: trio.Event, supervised: bool, *, task_status: trio.TaskStatus[None]
) -> None:
    """Reload the settings at SIGHUP, or shut down if it came because the terminal was closed.

    The parent of a supervised server looks after the terminal. It returns when the server drains.
    """
    import trio

    from greenroom.http.process.exit_status import Terminal
    from greenroom.schemas.logs import get_logger
    from greenroom.schemas.problems import ProblemError

    terminal = Terminal()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as it is again once the server drains
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGHUP) as hang_ups:
            task_status.started()
            nursery.start_soon(_cancel_after, drain, nursery.cancel_scope)
            async for _ in hang_ups:
                if terminal.is_gone and not supervised:
                    os.kill(os.getpid(), signal.SIGTERM)
                    continue
                try:
                    await reloader.reload()
                except ProblemError:
                    pass  # logged
                except Exception:  # no wrong setting ends a running server
                    get_logger(actor="http").exception("settings not reloaded")


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel("an event is set")


async def _wait_for_either(one: trio.Event, other: trio.Event) -> None:
    import trio

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_after, one, nursery.cancel_scope)
        nursery.start_soon(_cancel_after, other, nursery.cancel_scope)


def welcome(addresses: Sequence[str], settings: Settings, kind: ModelType, *, stores: bool) -> str:
    """Return the start-up message: addresses, an example request, and advice.

    Args:
        addresses: Addresses of the server, e.g. `http://127.0.0.1:8000`.
        stores: False if its database cannot be used.
    """
    here = (re.sub(r"//(0\.0\.0\.0|\[::\]):", "//127.0.0.1:", address) for address in addresses)
    reachable = list(dict.fromkeys(here))
    address = reachable[0]
    ids = [Path(name).name if Path(name).is_dir() else name for name in settings.models]
    served = ", ".join(ids) or "the built-in demo model"
    lines = [
        f"Greenroom serves {served} on {' and '.join(reachable)}",
        "",
        f"  {first_request(address, kind)}",
        "",
        f"OpenAI clients: base_url={address}/v1, any api_key. Ctrl-C stops.",
    ]
    if not settings.models:
        lines.append(f"For a real model: {program_name()} setup, or {program_name()} serve MODEL.")
    if stores and settings.store_responses and settings.db not in (None, ":memory:"):
        lines.append(f"What clients store goes to {settings.db}; --no-store-responses keeps none of it.")
    return "\n".join(lines)
