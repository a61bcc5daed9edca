"""The limit of open files: raised as far as needed and allowed, never lowered."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from greenroom.http.process.shutdown import raise_descriptor_limit
from greenroom.tests.support.platforms.macs import OPEN_MAX, pretend_mac


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    put_back = resource.setrlimit  # a test may pretend another one, and be undone later
    yield
    put_back(resource.RLIMIT_NOFILE, (soft, hard))


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_it_is_raised_to_what_is_wanted() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    assert raise_descriptor_limit(300) == soft_limit() == 300
    assert raise_descriptor_limit(200) == soft_limit() == 300


def test_the_hard_limit_stays() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this machine has no hard limit")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    assert raise_descriptor_limit(hard + 1) == soft_limit() == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard


def test_a_mac_takes_no_more_than_its_own_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = pretend_mac(monkeypatch)
    assert raise_descriptor_limit(2 * OPEN_MAX) == OPEN_MAX
    assert limits[resource.RLIMIT_NOFILE] == (OPEN_MAX, resource.RLIM_INFINITY)
