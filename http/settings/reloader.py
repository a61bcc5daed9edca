"""Reload of the settings, and the changes that a running server can apply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import click
import trio

from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings, compare
from greenroom.schemas.wire.admin import Reloaded

log = get_logger(actor="http")


class Reloader:
    """Reads the settings again and applies the changes, one reload at a time.

    Args:
        read: Function that reads and checks the settings on a thread; raises ClickException.
        reload_models: Function that applies the changed settings of models; returns the models whose files
            are read again.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        reload_models: Callable[[Settings], Awaitable[tuple[str, ...]]],
    ) -> None:
        self._settings = settings
        self._read = read
        self._reload_models = reload_models
        self._takers: list[Callable[[Settings], None]] = []
        self._turn = trio.Lock()

    @property
    def settings(self) -> Settings:
        return self._settings

    def tell(self, taker: Callable[[Settings], None]) -> None:
        """Call `taker` with the settings after each change."""
        self._takers.append(taker)

    async def reload(self) -> Reloaded:
        """Read and apply changed settings; nothing changes if one of them is wrong. Raises ProblemError: 400
        `bad_setting`, with the name of the setting.
        """
        async with self._turn:
            try:
                read = await trio.to_thread.run_sync(self._read)
            except (click.ClickException, OSError, ValueError, RuntimeError) as error:
                reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
                log.error("settings not reloaded", reason=reason)
                raise ProblemError(Problem(400, "bad_setting", f"Nothing has changed: {reason}.")) from error
            change = compare(self._settings, read)
            reopened = await self._reload_models(change.settings) if change.applied else ()
            self._settings = change.settings
            for taker in self._takers:
                taker(change.settings)
        reloaded = Reloaded(change.applied, change.needs_restart, reopened)
        log.info("settings reloaded", **attrs.asdict(reloaded, value_serializer=_listed))
        return reloaded


def _listed(_instance: object, _field: object, value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
