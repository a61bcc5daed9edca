"""Several answers to one prompt: computed once, then cloned."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from greenroom.engine.batch import caches
from greenroom.engine.batch.group import Joining


def with_twins(ready: Iterable[Joining]) -> Iterator[Joining]:
    """The rows that can decode, and behind each the further choices of its request."""
    for joining in ready:
        rows = [twin for row in joining.rows for twin in (row, *row.twins)]
        for row in joining.rows:
            for twin in row.twins:
                twin.started = row.started
        if len(rows) == len(joining.rows):
            yield joining
        elif joining.batchable:
            places = [i for i, row in enumerate(joining.rows) for _ in (row, *row.twins)]
            cache = caches.merge([joining.cache]) if len(joining.rows) == 1 else joining.cache
            caches.keep_rows(cache, places)
            yield Joining(tuple(rows), cache)
        else:
            for row in rows[1:]:
                yield Joining((row,), copy.deepcopy(joining.cache))
            yield joining
