"""The server that a launched client uses, and the start of a client that trusts it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import click
import httpx2

from greenroom.http.clients.certificate_bundle import (
    is_self_signed,
    make_bundle,
    trusted_address,
    with_bundle,
)
from greenroom.http.clients.launch import Launch
from greenroom.http.clients.launched import LaunchedClient
from greenroom.http.clients.own_server import own_server
from greenroom.http.clients.server_facts import NO_KEY, ServerFacts, facts_of
from greenroom.http.process.exit_status import status_of_signal
from greenroom.http.process.runtime_file import RunningServer, running_servers
from greenroom.http.terminal.admin_client import NO_SOCKETS
from greenroom.http.terminal.chosen_server import ServedModels
from greenroom.http.terminal.standard_streams import for_terminal

_SELF_SIGNED = (
    "takes no self-signed certificate: serve under one that an authority signed (mkcert makes both)"
)


@contextmanager
def server_for_client(
    url: str | None, model: str | None, folder: Path
) -> Iterator[tuple[ServerFacts, str, bool]]:
    """Yield the server to use, the path of its certificate, and whether it was started for this."""
    own_key = os.environ.get("GREENROOM_API_KEY", "")
    if url is not None:
        yield _facts(url.removesuffix("/v1"), own_key, model), "", False
        return
    servers = running_servers()
    for running in servers:
        if running.urls:
            yield _facts_of_running(running, own_key, model), running.certificate, False
            return
    for running in servers:
        if running.addresses:
            raise click.ClickException(for_terminal(f"{running.addresses[0]}: {NO_SOCKETS}"))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)  # not without ending the server
    click.echo("greenroom: no server runs on this machine: starting one until the client ends", err=True)
    try:
        with own_server(model, folder / "server.log") as running:
            yield _facts_of_running(running, own_key, None), running.certificate, True
    except RuntimeError as error:
        raise click.ClickException(for_terminal(str(error))) from error


def _facts_of_running(running: RunningServer, own_key: str, model: str | None) -> ServerFacts:
    # A locked file of this user's names its address: whatever its certificate, it is this user's server.
    return _facts(running.urls[0], own_key or running.key, model, verifies=False)


def _facts(url: str, key: str, model: str | None, *, verifies: bool = True) -> ServerFacts:
    try:
        with closing(ServedModels(url, key or NO_KEY, verifies=verifies)) as models:
            listed: Mapping[str, Any] | None = (
                models.first_of(("text", "vision")) if model is None else models.named(model)
            )
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(for_terminal(f"{url} does not answer: {error}")) from error
    if listed is None:
        wanted = f"model '{model}'" if model else "model for chats"
        raise click.ClickException(for_terminal(f"the server at {url} has no {wanted}"))
    return facts_of(url, key or NO_KEY, listed)


def start_trusting(
    launched: LaunchedClient, server: ServerFacts, certificate: str, folder: Path, arguments: Sequence[str]
) -> Launch:
    """Return the start of a client that trusts the certificate of this user's server, if it has one."""
    if not certificate or not server.url.startswith("https:"):
        return launched.make(server, folder, arguments)

    try:
        if not launched.takes_self_signed and is_self_signed(Path(certificate)):
            raise click.ClickException(f"{launched.title} {_SELF_SIGNED}")
        bundle = make_bundle(Path(certificate))
        address = trusted_address(server.url, bundle)
    except (OSError, ValueError) as error:
        reason = getattr(error, "verify_message", "") or error
        told = f"{launched.title} would not trust the certificate '{certificate}': {reason}"
        raise click.ClickException(for_terminal(told)) from error
    return with_bundle(launched.make(attrs.evolve(server, url=address), folder, arguments), folder, bundle)


def _leave(number: int, _frame: object) -> None:
    sys.exit(status_of_signal(number))
