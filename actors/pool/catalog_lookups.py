"""Names that requests use, looked up on disk and so never in the pool's receive loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from greenroom.actors.engines import Engines
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.pool_protocol import ModelCard, ModelDescriptions, ModelList
from greenroom.schemas.problems import Problem, internal_error, lookup_hung

if TYPE_CHECKING:
    from typing import Any

T = TypeVar("T")

LOOKUP_TIMEOUT = 60.0
"""Seconds for a look at folders; a disk that takes longer has hung, and whoever asks is told so."""

MAX_REMEMBERED = 1_024
"""Names: a pattern fits any number of them."""


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
        card = await self.card(name)
        if isinstance(card, Problem):
            return card
        key = ModelKey(card.id)
        if len(self._keys) < MAX_REMEMBERED:
            self._keys[name] = key
        return key

    async def card(self, name: str) -> ModelCard | Problem:
        """Return the entry of the model that a name means."""
        return await self._look(partial(self._engines.find_card, name), model=name)

    async def list(self) -> ModelList | Problem:
        """Return every model that can be asked for."""
        cards = await self._look(self._engines.cards)
        return cards if isinstance(cards, Problem) else ModelList(cards)

    async def describe(self, name: str | None) -> ModelDescriptions | Problem:
        """Return what the files of a model tell, or of all if none is named."""
        found = await self._look(partial(self._engines.describe, name))
        return found if isinstance(found, Problem) else ModelDescriptions(found)

    async def _look(self, look: Callable[[], T | Problem], **about: str) -> T | Problem:
        try:
            return await self._on_thread(look)
        except trio.TooSlowError:
            self._log.error("lookup hangs", **about)
            return lookup_hung(LOOKUP_TIMEOUT)
        except Exception:
            self._log.exception("lookup failed", **about)
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
