"""Slightly invalid requests to vision, embedding, rerank, speech and transcription models."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

import pytest

from greenroom.tests.http.test_fuzzed_requests import FAULTS, REFUSALS
from greenroom.tests.support.servers.http_servers import RawResponse
from greenroom.tests.support.servers.kind_servers import answer, asking
from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS, right_requests, spoiled_kind_request


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.deep] * (kind in ("hears", "speaks", "sees"))) for kind in MAKERS],
)
async def test_right_requests_are_answered_and_spoiled_ones_cause_no_fault(kind: str, tmp_path: Path) -> None:
    await _fuzz(kind, tmp_path, requests=10, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("kind", MAKERS)
async def test_many_spoiled_requests_cause_no_fault(kind: str, tmp_path: Path) -> None:
    await _fuzz(kind, tmp_path, requests=2_000, seed=SystemRandom().randrange(1 << 30))


async def _fuzz(kind: str, folder: Path, requests: int, seed: int) -> None:
    print(f"seed {seed}")
    source = Random(seed)
    statuses: Counter[int] = Counter()
    async with asking(kind, folder) as served:
        for request in right_requests(kind):
            right = await answer(served, request)
            assert right.status == 200, (request.path, right.body[:1_000])
        for _ in range(requests):
            request = spoiled_kind_request(source, kind)
            got = await answer(served, request)
            said = f"{request.path} {request.body[:2_000]!r}: {got.status} {got.body[-500:]!r}"
            assert got.status == 200 or got.status in REFUSALS, said
            assert not any(fault in got.body for fault in FAULTS), said
            check_numbers(got)
            if got.status != 200:
                assert got.json()["error"], said
            statuses[got.status] += 1
    print(statuses)
    assert statuses[200]
    assert sum(statuses.values()) > statuses[200]


def check_numbers(got: RawResponse) -> None:
    """Parse all JSON of an answer, and fail on NaN or infinite numbers; texts and files may contain them."""
    lines: list[bytes] = []
    match got.headers["content-type"].partition(";")[0]:
        case "application/json" | "application/problem+json":
            lines = [got.body]
        case "application/x-ndjson":
            lines = got.body.splitlines()
        case "text/event-stream":
            lines = [line[6:] for line in got.body.splitlines() if line.startswith(b"data: {")]
    for line in lines:
        if line:
            json.loads(line, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no number of JSON")
