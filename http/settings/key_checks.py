"""Check of API keys at the start: who listens to other machines needs a key."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from greenroom.actors.store.database.database_file import MEMORY
from greenroom.actors.store.read_keys import read_keys
from greenroom.http.guard.keys.reachability import find_reachable
from greenroom.http.guard.keys.settings_keys import settings_keys
from greenroom.http.settings.sources import KEY_VARIABLE, SERVER_KEY_VARIABLE, BadSettingError
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger(actor="http")


def check_keys(settings: Settings) -> None:
    """Refuse bad keys, and addresses that other machines reach while no request needs a key.

    Args:
        settings: Settings with the database's path.

    Raises:
        BadSettingError: Names the setting and the reason.
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
