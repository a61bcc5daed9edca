"""Catalog lookups for the pool, on threads, since they read the disk."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from greenroom.actors.engines.engines import Engines
from greenroom.actors.pool.residence_rules import preloads_by_pattern, preloads_of
from greenroom.actors.remotes.remote_servers import RemoteServers
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import (
    Problem,
    adapter_not_found,
    internal_error,
    lookup_hung,
    model_not_found,
)
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    ModelDescriptions,
    ModelName,
    NamedMessage,
    QueryPrompt,
)
from greenroom.schemas.settings.caller import is_allowed
from greenroom.schemas.settings.settings import Settings

T = TypeVar("T")

Adapter = tuple[str, float]

LOOKUP_TIMEOUT = 60.0
"""Time limit of a lookup in seconds; a disk that takes longer counts as hung, and the request fails."""

MAX_REMEMBERED = 1_024  # Maximum number of cached names; an alias pattern matches any number of them


class CatalogLookups:
    """Lookups of models, two at a time, with a cache of resolved names. `left_out`: names of models whose
    loads or answers crashed earlier processes; only a request loads them.
    """

    def __init__(
        self, engines: Engines, remotes: RemoteServers, log: Any, left_out: Collection[str] = ()
    ) -> None:
        self._left_out = frozenset(left_out)
        self._engines, self._remotes = engines, remotes
        self._log = log
        self._limiter = trio.CapacityLimiter(2)
        self._names: dict[str, ModelName] = {}
        self._revision = engines.names.revision

    def known(self, message: NamedMessage) -> ModelName | None:
        if allowed_models(message) or adapter_of(message) is not None:
            return None
        if self._revision != self._engines.names.revision:
            self._revision, self._names = self._engines.names.revision, {}
        name = message.key.model
        if self._remotes.place(name) is not None:  # which may change at any time
            return ModelName(name)
        return self._names.get(name)

    async def find(
        self, name: str, without: tuple[str, ...] = (), adapter: Adapter | None = None
    ) -> ModelName | Problem:
        """Return the meaning of a name, and remember it.

        Args:
            without: Models of the list `default` that failed to load for this request.
            adapter: Adapter that the request names, with its scale.
        """
        revision = self._engines.names.revision
        found = await self._look(partial(self._resolve, name, without, adapter), model=name)
        stays = not self._engines.names.chooses_default and len(self._names) < MAX_REMEMBERED
        stays = stays and revision == self._revision == self._engines.names.revision
        if isinstance(found, Problem) or found.route is not None or found.adapter is not None:
            return found
        if stays and found.listed and self._remotes.place(found.model) is None:
            self._names[name] = found
        return found

    def _resolve(self, name: str, without: tuple[str, ...], adapter: Adapter | None) -> ModelName | Problem:
        if (meant := self._elsewhere(name)) is None:
            return self._engines.names.resolve(name, without, adapter)
        return meant if adapter is None else adapter_not_found(adapter[0][:200], name)

    def _elsewhere(self, name: str) -> ModelName | None:
        """Return the meaning of a route's name, or of one of a remote model; None for all other names."""
        settings = self._engines.names.settings
        if (route := settings.all_routes.get(name)) is None:
            return self._remotes.find(name, settings)
        found = (self._resolve(each, (), None) for each in route.models if each not in settings.all_routes)
        models = [each.model for each in found if isinstance(each, ModelName) and not each.adapter]
        known = tuple(dict.fromkeys(models))
        return ModelName(known[0], route=name, candidates=known) if known else None

    async def find_allowed(
        self, name: str, without: tuple[str, ...], allowed: tuple[str, ...], adapter: Adapter | None = None
    ) -> ModelName | Problem:
        """Return the meaning of a name among the models that a caller may use.

        The others are unknown to it. Aliases, profiles and adapters are allowed with their models, and the
        list `default` means the first of its models that is allowed.
        """
        while True:
            found = await self.find(name, without, adapter)
            if not allowed:
                return found
            if isinstance(found, Problem):
                return await self._reason_for(found, name, allowed)
            if found.candidates:
                left = tuple(model for model in found.candidates if is_allowed(allowed, model))
                return attrs.evolve(found, candidates=left) if left else model_not_found(name)
            if is_allowed(allowed, found.model):
                return found
            if not found.replaceable:
                return model_not_found(name)
            without = (*without, found.model)

    async def _reason_for(self, problem: Problem, name: str, allowed: tuple[str, ...]) -> Problem:
        """Return a problem as told to a caller, who may not learn of models of others, or their adapters."""
        if problem.status != 404 and problem.code != "load_failed":
            return problem
        entry = await self._look(partial(self._engines.names.find, name), model=name)
        knows = not isinstance(entry, Problem) and is_allowed(allowed, entry.id)
        return problem if knows else model_not_found(name)

    async def change_adapter(self, name: str, *, available: bool) -> ModelName | Problem:
        """Let requests apply an adapter, or withdraw it; return its meaning."""
        change = partial(self._engines.names.change_adapter, name, available=available)
        return await self._look(change, adapter=name)

    async def describe(self, name: str | None) -> ModelDescriptions | Problem:
        """Return the description of a model, or of all models if `name` is None."""
        found = await self._look(partial(self._describe, name))
        return found if isinstance(found, Problem) else ModelDescriptions(found)

    def _describe(self, name: str | None) -> tuple[ModelDescription, ...] | Problem:
        if name is not None:
            meant = self._elsewhere(name)
            if meant is not None and self._remotes.place(meant.model) is not None:
                return (attrs.evolve(self._remotes.describe(meant.model), id=name),)
            return self._engines.describe(name if meant is None else meant.model)
        return self._engines.describe(None, self._remotes.descriptions())

    async def find_preloads(
        self, settings: Settings, report: Callable[[str, ModelName | Problem], None]
    ) -> None:
        """Look up the models to load at the start, and report each by its name in the settings."""
        listed = await self.describe(None) if preloads_by_pattern(settings) else None
        known = listed.models if isinstance(listed, ModelDescriptions) else ()
        for name in preloads_of(settings, dict.fromkeys(model.model for model in known)):
            found = await self.find(name)
            if isinstance(found, ModelName) and found.model in self._left_out:
                detail = "The server died while this model loaded or computed; a request loads it."
                found = Problem(503, "left_out", detail)
            report(name, found)

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
        """Run a lookup on a thread; a hung one is abandoned, and still counts as one of the two. Raises
        trio.TooSlowError: the lookup exceeds `LOOKUP_TIMEOUT`.
        """
        with trio.fail_after(LOOKUP_TIMEOUT):
            guarded = partial(_without_panic, look)
            return await trio.to_thread.run_sync(guarded, abandon_on_cancel=True, limiter=self._limiter)


def allowed_models(message: NamedMessage) -> tuple[str, ...]:
    """Return the names and patterns of the models that a message may mean; empty for all."""
    return message.allowed if isinstance(message, Acquire | QueryPrompt) else ()


def adapter_of(message: NamedMessage) -> Adapter | None:
    """Return the adapter that a message names, with its scale; None if it names none."""
    if not isinstance(message, Acquire | QueryPrompt) or message.adapter is None:
        return None
    return message.adapter, message.adapter_scale if isinstance(message, Acquire) else 1.0


def _without_panic(look: Callable[[], T]) -> T:
    try:
        return look()
    except BaseException as error:
        if isinstance(error, Exception):
            raise
        # A BaseException in a task would end the server.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
