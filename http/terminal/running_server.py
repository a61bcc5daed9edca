"""Choice of the running server that a command uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from greenroom.http.settings.sources import environment_key
from greenroom.http.terminal.admin_client import AdminClient, address_of_running, check_url
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.http.process.runtime_file import RunningServer
    from greenroom.http.terminal.chosen_server import ChosenServer, ServedModels

F = TypeVar("F", bound=Callable[..., Any])

_OF_LOADING = (
    "device",
    "draft_model",
    "dtype",
    "kv_bits",
    "max_context",
    "memory_bytes",
    "speculation",
    "trust_remote_code",
)
"""Settings that a running server has settled for its models: a flag of these asks for a load of one's own."""


def server_options(command: F) -> F:
    """Give a command the options `--url` and `--local`, which choose where its model runs."""
    url = click.option(
        "--url",
        callback=check_url,
        help="Use this server (http://HOST:PORT, unix:/PATH) instead of one that runs on this machine.",
    )
    local = click.option(
        "--local", "stays_local", is_flag=True, help="Load the model here, even if a server runs that has it."
    )
    return url(local(command))


def choose_server(
    settings: Settings, model: str | None, kinds: Sequence[ModelType], url: str | None, *, stays_local: bool
) -> ChosenServer | None:
    """Return a server that runs, for a command; None if it needs one of its own.

    That is the one at `url`, else a server of this user on this machine that has the model. If one runs that
    does not have it, a line says so: a command never makes a server unload what others use for a model that
    the server was not told to serve.

    Raises:
        UsageError: Both a server and none is asked for.
    """
    if url is not None:
        if stays_local:
            raise click.UsageError("--url and --local exclude each other")
        return _named_server(url, model)
    if stays_local:
        return None

    from greenroom.http.process.runtime_file import running_servers

    if not (running := [server for server in running_servers() if server.addresses]):
        return None
    if flags := [name for name, source in settings.origins if source == "flag" and name in _OF_LOADING]:
        flag = f"--{flags[0].replace('_', '-')}"
        _say(f"{flag} is for a model loaded here: not using the server at {running[0].addresses[0]}")
        return None
    for server in running:
        if (found := _with_model(server, model, kinds)) is not None:
            if sys.stderr is not None and sys.stderr.isatty():
                name = model or found.model
                _say(f"using {name} of the server at {found.url} (--local loads it here instead)")
            return found
    return None


def listing_server(settings: Settings, url: str | None, *, stays_local: bool) -> AdminClient | None:
    """Return a client of the running server whose models a command lists; None for those of its settings.

    Flags describe another server than the one that runs.
    """
    flagged = any(source == "flag" for _, source in settings.origins)
    if stays_local or (url is None and flagged):
        return None
    place = url or address_of_running()
    return None if place is None else AdminClient(place)


def _named_server(url: str, model: str | None) -> ChosenServer:
    import httpx2

    from greenroom.http.terminal.chosen_server import ChosenServer, ServedModels, chosen

    named = ChosenServer(url, model or "default")
    try:
        with closing(ServedModels(url)) as models:
            listed = models.named(named.model)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError):
        return named  # it says what is wrong when it is asked
    return named if listed is None or "settings" not in listed else chosen(url, {**listed, "id": named.model})


def _with_model(server: RunningServer, model: str | None, kinds: Sequence[ModelType]) -> ChosenServer | None:
    """Return a running server if it has the model; else say why it is not used."""
    import httpx2

    from greenroom.http.terminal.chosen_server import ServedModels, chosen

    url = server.addresses[0]
    # A server that was found gets no key that was meant for another.
    key = environment_key() or server.key or "none"
    try:
        with closing(ServedModels(url, key, verifies=False)) as models:
            listed = _find(models, model, kinds)
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        _say(f"not using the server at {url}: {str(error) or type(error).__name__}")
        return None
    if listed is None:
        from greenroom.schemas.models.kinds import PURPOSES

        missing = f"'{model}'" if model else f"a model for {PURPOSES[kinds[0]]}"
        _say(f"the server at {url} does not serve {missing}: loading it here")
        return None
    return attrs.evolve(chosen(url, listed, key), verifies=False)


def _find(models: ServedModels, model: str | None, kinds: Sequence[ModelType]) -> Mapping[str, Any] | None:
    if model is None:
        return models.first_of(kinds)
    folder = os.path.abspath(os.path.expanduser(model))
    is_folder = os.path.isdir(folder)
    found = models.in_folder(folder) if is_folder else models.named(model)
    if found is None or found.get("type") not in kinds:
        return None
    # An alias or a pattern of the server's may mean another model by the name of one of the hub's.
    return found if is_folder or "/" not in model or found["id"] == model else None


def _say(text: str) -> None:
    click.echo(f"greenroom: {text}", err=True)
