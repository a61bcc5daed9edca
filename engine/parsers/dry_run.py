"""Trial parsing, whose malformed calls are not logged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_dry_run: ContextVar[bool] = ContextVar("_is_dry_run", default=False)


def is_dry_run() -> bool:
    """Return whether this is a dry run, whose text no model has written."""
    return _is_dry_run.get()


@contextmanager
def dry_run() -> Iterator[None]:
    """Mark parsing inside the block as a dry run."""
    token = _is_dry_run.set(True)
    try:
        yield
    finally:
        _is_dry_run.reset(token)
