"""Location of the database, checked at start-up."""

from __future__ import annotations

import attrs

from greenroom.actors.store.database.check_database import check_database
from greenroom.actors.store.database.database_file import MEMORY, UnusableDatabase, default_path
from greenroom.http.settings.sources import BadSettingError
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger()


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
