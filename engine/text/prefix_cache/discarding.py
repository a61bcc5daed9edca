"""Decorator that discards cached prefixes after an engine crash, since they may be wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Caching(Protocol):
    prefix_cache: PrefixCache | None


Engine = TypeVar("Engine", bound=_Caching)


def discards_if_raised(
    method: Callable[Concatenate[Engine, Arguments], Result],
) -> Callable[Concatenate[Engine, Arguments], Result]:
    """Discard the engine's cached prefixes if the method raises, which makes the engine unusable."""

    @wraps(method)
    def discarding(engine: Engine, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return method(engine, *arguments, **named)
        except BaseException:
            if engine.prefix_cache is not None:
                engine.prefix_cache.discard()
            raise

    return discarding
