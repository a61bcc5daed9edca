"""Names that requests use, looked up on disk and so never in the pool's receive loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from greenroom.actors.engines import Engines
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.pool_protocol import ModelList
from greenroom.schemas.problems import Problem, internal_error, lookup_hung

if TYPE_CHECKING:
    from typing import Any

    from greenroom.engine.catalog.catalog import CatalogEntry

T = TypeVar("T")

LOOKUP_TIMEOUT = 60.0
"""Seconds for a look at folders; a disk that takes longer has hung, and whoever asks is told so."""


class CatalogLookups:
    """Looks models up, two at a time, and remembers whose name was found.

    Args:
        log: The pool's.
    """

    def __init__(self, engines: Engines, log: Any) -> None:
        self._engines = engines
        self._log = log
        self._limiter = trio.CapacityLimiter(2)
        self._keys: dict[str, ModelKey] = {}

    def known(self, name: str) -> ModelKey | None:
        """Return the model that a name means, if it has been looked up."""
        return self._keys.get(name)

    async def find(self, name: str) -> ModelKey | Problem:
        """Return the model that a name means."""
        try:
            find = partial(self._engines.find, name)
            found: CatalogEntry | Problem = await self._on_thread(find)
        except trio.TooSlowError:
            self._log.error("lookup hangs", model=name)
            return lookup_hung(LOOKUP_TIMEOUT)
        except Exception:
            self._log.exception("lookup failed", model=name)
            return internal_error()
        if isinstance(found, Problem):
            return found
        key = self._keys[name] = ModelKey(found.id)
        return key

    async def list(self) -> ModelList | Problem:
        """Return every model that can be asked for."""
        try:
            return ModelList(await self._on_thread(self._engines.cards))
        except trio.TooSlowError:
            self._log.error("listing hangs")
            return lookup_hung(LOOKUP_TIMEOUT)
        except Exception:
            self._log.exception("listing failed")
            return internal_error()

    async def _on_thread(self, look: Callable[[], T]) -> T:
        """Look on a thread; one that hangs is abandoned, and keeps its place among the two.

        Raises:
            trio.TooSlowError: There is no answer in `LOOKUP_TIMEOUT`.
        """
        with trio.fail_after(LOOKUP_TIMEOUT):
            guarded = partial(_without_panic, look)
            return await trio.to_thread.run_sync(guarded, abandon_on_cancel=True, limiter=self._limiter)


def _without_panic(look: Callable[[], T]) -> T:
    try:
        return look()
    except BaseException as error:
        if isinstance(error, Exception):
            raise
        # In a task it would end the server.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
