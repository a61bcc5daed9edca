"""A Mac's system, as far as this process asks it."""

from __future__ import annotations

import resource
import sys

import pytest

OPEN_MAX = 10_240
_REFUSED = "current limit exceeds maximum limit"


def pretend_mac(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """Give this process the name and the limits of a Mac's system; return those that it sets.

    It has no hard limit of open files, but refuses soft ones beyond one of its own; the address space cannot
    be limited.
    """
    limits = {resource.RLIMIT_NOFILE: (256, resource.RLIM_INFINITY)}

    def set_limit(kind: int, asked: tuple[int, int], /) -> None:
        if kind == resource.RLIMIT_AS or (kind == resource.RLIMIT_NOFILE and asked[0] > OPEN_MAX):
            raise ValueError(_REFUSED)
        limits[kind] = asked

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind, (-1, -1)))
    return limits
