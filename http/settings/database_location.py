"""Where a server keeps responses, looked at before the first request does."""

from __future__ import annotations

import attrs

from greenroom.actors.store.database.check_database import check_database
from greenroom.actors.store.database.database_file import MEMORY, UnusableDatabase, default_path
from greenroom.http.settings.sources import BadSettingError
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger()


def locate_database(settings: Settings) -> Settings:
    """Return settings that name the database: without a name it is the one in the user's data folder.

    Should that one be unusable, it is told, and the server runs without it: what needs no store is answered.

    Raises:
        BadSettingError: The database that was named cannot be used.
    """
    if settings.db == MEMORY or not settings.store_responses:
        return settings
    name = str(default_path()) if settings.db is None else settings.db
    try:
        check_database(name)
    except UnusableDatabase as error:
        if settings.db is not None:
            raise BadSettingError(f"db = {name!r}: {error}") from error
        log.warning("nothing can be stored", actor="store", db=name, reason=str(error))
    return attrs.evolve(settings, db=name)
