"""Meanings of the names in requests, in one order for every protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs

from greenroom.engine.catalog.entries import CatalogEntry
from greenroom.schemas.settings.name_patterns import is_pattern, name_pattern
from greenroom.schemas.settings.settings import Aliases

DEFAULT_ID = "default"
"""Alias of the first model."""

LATEST = ":latest"
"""Tag that Ollama clients append to names without a tag."""

_LONGEST = 200
"""Number of a name's characters that are compared with patterns."""

Lookup = Callable[[str], CatalogEntry | None]


class Names:
    """Resolution of requested names: id, `default`, alias, profile, pattern, and the operator's own spelling.

    Each step looks for the name as it is, then
    without `:latest`. An alias or a profile means a model, and never another alias.

    Args:
        by_id: Lookup of a model by its id.
        default: Lookup of the model that `default` means.
        aliases: Further names and patterns with the models that they mean.
        profiles: Models by name of profile.
        written: Ids by the operator's spelling of a model, such as a path.
    """

    def __init__(
        self,
        by_id: Lookup,
        default: Callable[[], CatalogEntry | None],
        aliases: Aliases,
        profiles: Mapping[str, str],
        written: Mapping[str, str | None],
    ) -> None:
        self._by_id = by_id
        self._default = default
        self._aliases = {name: model for name, model in reversed(aliases) if not is_pattern(name)}
        self._patterns = tuple((name_pattern(name), model) for name, model in aliases if is_pattern(name))
        self._profiles = profiles
        self._written = written

    def find(self, name: str) -> CatalogEntry | None:
        """Return the entry that a requested name means; None if it means nothing."""
        steps: tuple[Lookup, ...] = (
            self._by_id,
            self._of_default,
            self._of_alias,
            self._of_profile,
            self._of_pattern,
            self._of_written,
        )
        spellings = dict.fromkeys((name, name.removesuffix(LATEST)))
        return next(filter(None, (step(each) for step in steps for each in spellings)), None)

    def further(self) -> Iterable[tuple[str, CatalogEntry]]:
        """Yield the exact aliases in the operator's order, then the profiles, each with its model."""
        listed = dict.fromkeys([*reversed(self._aliases), *self._profiles])
        for name in listed:
            if (entry := self._of_alias(name) or self._of_profile(name)) is not None:
                yield name, entry

    def _model(self, name: str | None) -> CatalogEntry | None:
        if name is None:
            return None
        return self._by_id(name) or self._of_default(name) or self._of_written(name)

    def _of_default(self, name: str) -> CatalogEntry | None:
        entry = self._default() if name == DEFAULT_ID else None
        return None if entry is None else attrs.evolve(entry, by_default=True)

    def _of_alias(self, name: str) -> CatalogEntry | None:
        return self._model(self._aliases.get(name))

    def _of_profile(self, name: str) -> CatalogEntry | None:
        entry = self._model(self._profiles.get(name))
        return None if entry is None else attrs.evolve(entry, profile=name)

    def _of_pattern(self, name: str) -> CatalogEntry | None:
        fits = (model for pattern, model in self._patterns if pattern.fullmatch(name[:_LONGEST]))
        return self._model(next(fits, None))

    def _of_written(self, name: str) -> CatalogEntry | None:
        model = self._written.get(name)
        return None if model is None else self._by_id(model)


def find_conflict(models: Iterable[tuple[str, str]], aliases: Aliases, profiles: Iterable[str]) -> str | None:
    """Return a sentence about two things of one name, without its full stop; None if there are none.

    A name with `:latest` is the same as one without.

    Args:
        models: Ids of the models that the operator named, each with its place.
        aliases: Further names of models.
        profiles: Names of profiles.
    """
    places: dict[str, str] = {}
    for model, place in models:
        name = model.removesuffix(LATEST)
        if name in places:
            return f"'{name}' is the name of two models, in {places[name]} and in {place}"
        places[name] = place
    kinds = {
        "a model": list(places),
        "an alias": [alias for alias, _ in dict.fromkeys(aliases) if not is_pattern(alias)],
        "a profile": list(profiles),
        "the first model": [DEFAULT_ID],
    }
    names = [(name.removesuffix(LATEST), kind) for kind, listed in kinds.items() for name in listed]
    counted = Counter(name for name, _ in names)
    for name, kind in names:
        if counted[name] > 1:
            others = [other for each, other in names if each == name]
            others.remove(kind)
            if {kind, *others} != {"a model", "the first model"}:  # a folder of that name is not shadowed
                return f"'{name}' is the name of {kind} and of {others[0]}"
    return None
