"""Catalog lookups for the pool, on threads, since they read the disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from greenroom.actors.engines.engines import Engines
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, internal_error, lookup_hung
from greenroom.schemas.protocols.pool_protocol import ModelCard, ModelDescriptions, ModelList

if TYPE_CHECKING:
    from typing import Any

T = TypeVar("T")

LOOKUP_TIMEOUT = 60.0
"""Time limit of a lookup in seconds; a disk that takes longer counts as hung, and the request fails."""

MAX_REMEMBERED = 1_024
"""Maximum number of cached names; an alias pattern matches any number of them."""


class CatalogLookups:
    """Lookups of models, two at a time, with a cache of resolved names.

    Args:
        log: Logger of the pool.
    """

    def __init__(self, engines: Engines, log: Any) -> None:
        self._engines = engines
        self._log = log
        self._limiter = trio.CapacityLimiter(2)
        self._keys: dict[str, ModelKey] = {}

    def known(self, name: str) -> ModelKey | None:
        """Return the key of the model with this name from the cache; None if it is not cached."""
        return self._keys.get(name)

    async def find(self, name: str) -> ModelKey | Problem:
        """Return the key of the model with this name."""
        card = await self.card(name)
        if isinstance(card, Problem):
            return card
        key = ModelKey(card.id)
        if len(self._keys) < MAX_REMEMBERED:
            self._keys[name] = key
        return key

    async def card(self, name: str) -> ModelCard | Problem:
        """Return the card of the model with this name."""
        return await self._look(partial(self._engines.find_card, name), model=name)

    async def list(self) -> ModelList | Problem:
        """Return the cards of all available names."""
        cards = await self._look(self._engines.cards)
        return cards if isinstance(cards, Problem) else ModelList(cards)

    async def describe(self, name: str | None) -> ModelDescriptions | Problem:
        """Return the description of a model, or of all models if `name` is None."""
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
        """Run a lookup on a thread; a hung one is abandoned, and still counts as one of the two.

        Raises:
            trio.TooSlowError: The lookup exceeds `LOOKUP_TIMEOUT`.
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
        # A BaseException in a task would end the server.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
