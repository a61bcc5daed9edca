"""Settings of models elsewhere: the tables `[remotes.NAME]` and `[routes.NAME]` of the settings file."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from itertools import chain
from typing import Literal, get_args
from urllib.parse import urlsplit

import attrs

from greenroom.schemas.settings.caller import checked_key, key_in_file
from greenroom.schemas.settings.setting_groups import merge_tables, setting, setting_table

REMOTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Pattern of the names of remotes, which begin the names of their models."""
HOP = "x-greenroom-hop"
"""Header of requests that have come from another Greenroom, which are not sent on."""

RemoteApi = Literal["greenroom", "openai", "anthropic", "responses"]
Preference = Literal["order", "cheapest", "loaded"]


@attrs.frozen(repr=False)
class Remote:
    """A server elsewhere whose models are listed here."""

    url: str = setting("", "Address of the server; `/v1` is added to one without a path.")
    api: RemoteApi = setting(
        "openai",
        "What it speaks: `greenroom`, `openai` (chat completions), `anthropic` (messages) or `responses`.",
        one_of=get_args(RemoteApi),
    )
    key_env: str | None = setting(None, "Environment variable with its API key.")
    key_file: str | None = setting(None, "File with its API key.")
    models: tuple[str, ...] = setting(
        ("*",), "Its models to list: names, patterns with `*`, or `HERE=THERE` for another name here."
    )
    slots: int = setting(8, "Requests that run there at once; more wait here.", low=1, high=10_000)
    cost: float = setting(1.0, "Price by which `cheapest` compares it; models of this machine cost 0.", low=0)
    connect_timeout: float = setting(5.0, "Longest time to connect, in seconds.", above=0)
    first_token_timeout: float = setting(
        120.0, "Longest time until an answer begins, in seconds; then another model is asked.", above=0
    )
    silence_timeout: float = setting(60.0, "Longest pause within an answer, in seconds.", above=0)
    ca_file: str | None = setting(None, "File with the certificates that its own is checked against (PEM).")

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if self.url and not (is_web and self.url.isprintable() and " " not in self.url):
            raise ValueError("url must be one word that begins with http:// or https:// and a host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("url must have no user, query or fragment; a key belongs in key_env or key_file")

    @property
    def base(self) -> str:
        """Address before the names of routes, such as `https://api.example/v1`."""
        url = self.url.rstrip("/")
        return url if urlsplit(url).path else f"{url}/v1"

    @property
    def root(self) -> str:
        return self.base.removesuffix("/v1")

    def key(self) -> str | None:
        """Return its API key; None if the settings name none. It reads a file. Raises ValueError: The key
        cannot be read, or sent; the message does not have it.
        """
        if self.key_env is not None:
            return checked_key(f"the variable {self.key_env}", os.environ.get(self.key_env, ""))
        return None if self.key_file is None else key_in_file(f"key_file {self.key_file}", self.key_file)

    def name_here(self, there: str) -> str | None:
        """Return the name here of a model of the remote, without the remote's; None for none."""
        renamed = (here for here, name in self._renamed.items() if name == there)
        plain = (there for entry in self.models if "=" not in entry and fnmatchcase(there, entry))
        return next(chain(renamed, plain), None)

    def name_there(self, here: str) -> str | None:
        """Return the name of a model in the remote; None if the settings list no model of that name."""
        return self._renamed.get(here, here if self.name_here(here) == here else None)

    @property
    def _renamed(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.models if "=" in entry)

    @property
    def named(self) -> tuple[str, ...]:
        """Names here of the models that the settings name, as opposed to patterns."""
        return tuple(entry.partition("=")[0] for entry in self.models if "*" not in entry)


@attrs.frozen
class Route:
    """A name that means the first usable one of several models, here or elsewhere."""

    models: tuple[str, ...] = setting((), "Models in order; those of remotes as REMOTE/NAME.")
    prefer: Preference = setting(
        "order",
        "Model to take of those that can answer: the first in `order`, the `cheapest`, or one `loaded`.",
        one_of=get_args(Preference),
    )
    max_wait: float | None = setting(
        None,
        "Estimated wait in seconds above which the next model is asked (default: no limit).",
        low=0,
    )


RemoteTables = tuple[tuple[str, Remote], ...]
RouteTables = tuple[tuple[str, Route], ...]


@attrs.frozen(slots=False)
class Remotes:
    """Settings of models elsewhere."""

    remotes: RemoteTables = setting_table(
        Remote,
        "Servers elsewhere, as tables `[remotes.NAME]` with `url` and `api`, whose models are listed here as "
        "NAME/MODEL. Without any, nothing leaves this machine.",
    )
    routes: RouteTables = setting_table(
        Route,
        "Names that mean several models, as tables `[routes.NAME]` with `models`: the first that can answer.",
    )
    local_only: bool = setting(False, "Send nothing to remotes, whatever the other settings say.")

    @property
    def remote_servers(self) -> dict[str, Remote]:
        """The remotes by name, none with `local_only`; each setting from the first table that has it.
        Raises ValueError: A remote has no address, or two keys.
        """
        servers = merge_tables(Remote, self.remotes)
        for name, server in servers.items():
            if not server.url:
                raise ValueError(f"remotes.{name} needs `url`")
            if server.key_env is not None and server.key_file is not None:
                raise ValueError(f"remotes.{name} needs either `key_env` or `key_file`")
        return {} if self.local_only else servers

    @property
    def all_routes(self) -> dict[str, Route]:
        return merge_tables(Route, self.routes)

    def is_remote(self, model: str) -> bool:
        """Return whether a name is one of a model of a remote, also while nothing may leave."""
        owner, slash, _ = model.partition("/")
        return bool(slash) and any(name == owner for name, _ in self.remotes)
