"""A pretended macOS, as far as this process can see it."""

from __future__ import annotations

import resource
import sys

import pytest

OPEN_MAX = 10_240
_REFUSED = "current limit exceeds maximum limit"


def pretend_mac(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """Make this process see macOS's platform name and resource limits; return the limits that it sets.

    macOS has no hard limit of open files, but refuses soft limits above a fixed one. It cannot limit the
    address space.
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
