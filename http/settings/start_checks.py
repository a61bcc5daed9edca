"""Checks at start-up of settings against this machine: ranges, keys, and the database's place."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from pathlib import Path

import attrs
import click

from greenroom.actors.store.connection import check_database
from greenroom.actors.store.database_file import MEMORY, UnusableDatabase, default_path
from greenroom.actors.store.read_only import read_keys
from greenroom.http.guard.keys import find_reachable, settings_keys
from greenroom.http.guard.request_deadlines import parse_request_timeouts
from greenroom.http.settings.sources import KEY_VARIABLE, SERVER_KEY_VARIABLE, BadSettingError, KnownModels
from greenroom.http.transport.tls import server_context
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.hosts import place_ranks, read_hosts
from greenroom.schemas.settings.listen_address import parse_listen_address
from greenroom.schemas.settings.settings import ModelSettings, Settings


def check_at_start(settings: Settings, local: KnownModels) -> None:
    """Refuse settings that this machine cannot serve, and create the folder of the prefix cache. Raises
    BadSettingError: names the setting and the reason.
    """
    if not local.can_compute():
        raise click.ClickException(
            "MLX has no backend on this machine: install Greenroom with [cpu], [cuda12] or [cuda13], "
            "for example by: uv tool install '.[cpu]'"
        )
    _check_models(settings, local)
    _check_names(settings, local)
    _check_listen(settings)
    _check_timeouts(settings)
    if settings.device == "gpu" and not local.has_gpu():
        raise BadSettingError("device = 'gpu': MLX finds no GPU on this machine")
    if (complaint := local.find_bad_file(settings)) is not None:
        raise BadSettingError(complaint)
    if (complaint := local.why_pins_do_not_fit(settings)) is not None:
        raise BadSettingError(f"model.pinned: {complaint}")
    _check_prefix_cache_dir(settings)
    _check_certificate(settings)
    for own in (settings, *(settings.applied_to(name) for name, _ in settings.model_settings)):
        _check_speculation(own, local)
    for name, table in (("", ModelSettings()), *settings.model_settings):
        try:
            place_ranks(table.ranks or 1, read_hosts(settings.applied_to(name).hosts))
        except ValueError as error:
            raise BadSettingError(f"hosts: {error}") from error


def _check_models(settings: Settings, local: KnownModels) -> None:
    """Refuse names that mean nothing, and folders that hold no model if no other is named."""
    faults = {model: why for model in settings.models if (why := local.why_no_model(model)) is not None}
    for model, why in faults.items():
        if local.is_missing(model) or len(faults) == len(set(settings.models)):
            raise BadSettingError(f"models: {why}")
    for why in faults.values():
        get_logger().warning("model unusable", reason=why)


def _check_names(settings: Settings, local: KnownModels) -> None:
    """Refuse names that mean no model, or two things at once."""
    profiles = settings.all_profiles
    meanings = [
        *((f'model."{model}".alias: {alias!r}', model) for alias, model in settings.aliases),
        *((f'profiles."{name}": its model', profile.model) for name, profile in profiles.items()),
        *(("default: it", model) for model in settings.default),
        *(
            (f"routes.{name}: it", model)
            for name, route in settings.all_routes.items()
            for model in route.models
        ),
    ]
    _check_remotes(settings)
    for place, model in meanings:
        if not model:
            raise BadSettingError(f"{place} is not named: write model = ...")
    here = {model for _, model in meanings if not settings.is_remote(model)}
    unknown = local.find_unknown(settings, here) if here else set()
    for place, model in meanings:
        if model in unknown:
            raise BadSettingError(f"{place} means {model!r}, which is none of the models here")
    if (meanings or settings.model_dir) and (conflict := local.find_conflict(settings)) is not None:
        raise BadSettingError(f"{conflict}: rename one of them")
    if settings.allow_downloads and settings.trust_remote_code:
        raise BadSettingError(
            "allow_downloads: trust_remote_code would run code that requests bring; leave one of them out"
        )


def _check_remotes(settings: Settings) -> None:
    """Refuse routes that mean nothing or have another's name, and remotes whose keys cannot be read."""
    taken = {"default", *settings.all_profiles, *(alias for alias, _ in settings.aliases)}
    for name, route in settings.all_routes.items():
        if not route.models:
            raise BadSettingError(f"routes.{name} needs `models`")
        if name in taken or settings.is_remote(name):
            raise BadSettingError(f"routes.{name}: something else has this name: rename one of them")
        for model in route.models:
            if model in settings.all_routes:
                raise BadSettingError(f"routes.{name}: {model!r} is a route, and a route has models")
    for name, remote in settings.remote_servers.items():
        try:
            remote.key()
        except ValueError as error:
            raise BadSettingError(f"remotes.{name}: {error}") from error


def _check_listen(settings: Settings) -> None:
    for address in settings.listen:
        try:
            parse_listen_address(address)
        except ValueError as problem:
            example = "for example 127.0.0.1:11434 or unix:/run/greenroom.sock"
            raise BadSettingError(f"listen = {address!r}: {problem}, {example}") from None


def _check_timeouts(settings: Settings) -> None:
    for limit in settings.request_timeout:
        try:
            parse_request_timeouts([limit])
        except ValueError as problem:
            raise BadSettingError(f"request_timeout = {limit!r}: {problem}") from None


def _check_speculation(settings: Settings, local: KnownModels) -> None:
    draft = settings.draft_model
    if draft is None and settings.speculation == "draft":
        raise BadSettingError("speculation = 'draft': draft_model must name the draft model")
    if draft is not None and settings.speculation == "lookup":
        raise BadSettingError("speculation = 'lookup' does not use draft_model: leave one of them out")
    if draft is not None and (why := local.why_no_model(draft)) is not None:
        raise BadSettingError(f"draft_model: {why}")


def _check_certificate(settings: Settings) -> None:
    try:
        server_context(settings)
    except (OSError, ValueError) as error:
        named = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        raise BadSettingError(f"tls_certificate: {named}") from error


def _check_prefix_cache_dir(settings: Settings) -> None:
    if settings.prefix_cache_dir is None:
        return
    if not settings.prefix_cache_bytes:
        raise BadSettingError("prefix_cache_dir: needs memory too, but prefix_cache_bytes is 0")
    folder = settings.prefix_cache_dir
    try:
        path = Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadSettingError(f"prefix_cache_dir = {folder!r}: cannot be written to ({reason})") from error


log = get_logger(actor="http")


def check_keys(settings: Settings) -> None:
    """Refuse bad keys, and addresses that other machines reach while no request needs a key. Raises
    BadSettingError: names the setting and the reason.
    """
    try:
        own = settings_keys(settings)
    except ValueError as error:
        raise BadSettingError(str(error)) from error
    if dict(settings.origins).get("api_key") == "flag":
        log.warning(
            "key on the command line",
            effect="every user of this machine sees it, in ps",
            instead=f"{SERVER_KEY_VARIABLE} or --api-key-file",
        )
    if settings.api_key_file is not None and _is_readable_by_others(settings.api_key_file):
        log.warning("key file is open to others", api_key_file=settings.api_key_file, instead="chmod 600")
    if KEY_VARIABLE in os.environ and not own and not _has_keys(settings.db):
        log.warning(
            "no request needs a key",
            reason=f"{KEY_VARIABLE} is the key that commands send",
            instead=f"{SERVER_KEY_VARIABLE}, --api-key-file or `greenroom keys add`",
        )
    if settings.open_loopback:
        log.warning(
            "loopback is open", effect="tunnels and reverse proxies of this machine look like it, too"
        )
    address = find_reachable(settings)
    if address is None or own or settings.insecure or _has_keys(settings.db):
        return
    raise BadSettingError(
        f"host: other machines may reach {address!r}, but no request needs a key. Make one by "
        f"`greenroom keys add NAME`, or set {SERVER_KEY_VARIABLE}; --insecure lets everybody in"
    )


def _is_readable_by_others(path: str) -> bool:
    return bool(stat.S_IMODE(Path(path).expanduser().stat().st_mode) & 0o077)


def _has_keys(database: str | None) -> bool:
    if database is None or database == MEMORY:
        return False
    try:
        return any(not record.is_off for record in read_keys(Path(database)))
    except (sqlite3.Error, OSError, ValueError, TypeError):
        return True  # nobody knows, so the server is locked until the database can be read


def locate_database(settings: Settings) -> Settings:
    """Return settings with the database's path, by default in the user's data folder.

    If the default database is unusable, a warning is logged, and the server runs without storage.

    Raises:
        BadSettingError: A database set explicitly is unusable.
    """
    if settings.db == MEMORY:
        return settings
    name = str(default_path()) if settings.db is None else settings.db
    try:
        check_database(name)
    except UnusableDatabase as error:
        if settings.db is not None:
            raise BadSettingError(f"db = {name!r}: {error}") from error
        log.warning("nothing can be stored", actor="store", db=name, reason=str(error))
    return attrs.evolve(settings, db=name)
