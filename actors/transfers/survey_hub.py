"""Survey of models on the hub before one is chosen: their sizes, and the rate at which they would arrive."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
import trio

from greenroom.engine.catalog.hub.repository import hub_address, hub_token

SECONDS = 5.0
"""Longest wait for the sizes: a machine without a network must not look stuck."""
_SAMPLE_SECONDS = 2.0
_SAMPLE_BYTES = 32 << 20


async def survey_hub(hub_ids: Sequence[str]) -> tuple[dict[str, int], float]:
    """Return the bytes of each of these models that the hub gives to everybody, and its bytes per second.

    The rate is measured on the first bytes of the first model's largest file; nothing is kept. Both are empty
    if the hub does not answer within seconds, or HF_HUB_OFFLINE forbids to ask it.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode() or not hub_ids:
        return {}, 0.0
    headers = {"authorization": f"Bearer {token}"} if (token := hub_token()) else {}
    files: dict[str, dict[str, int]] = {}
    rate = 0.0
    async with httpx2.AsyncClient(
        base_url=hub_address(), headers=headers, follow_redirects=True, timeout=SECONDS
    ) as client:

        async def list_files(hub_id: str) -> None:
            try:
                answer = (await client.get(f"/api/models/{hub_id}?blobs=true")).raise_for_status().json()
                if not answer.get("gated"):
                    files[hub_id] = {str(each["rfilename"]): int(each["size"]) for each in answer["siblings"]}
            except (httpx2.HTTPError, httpx2.InvalidURL, AttributeError, KeyError, TypeError, ValueError):
                pass  # it is not offered

        with trio.move_on_after(SECONDS):
            async with trio.open_nursery() as nursery:
                for hub_id in hub_ids:
                    nursery.start_soon(list_files, hub_id)
        sizes = {hub_id: sum(files[hub_id].values()) for hub_id in hub_ids if files.get(hub_id)}
        if sizes:
            first = next(iter(sizes))
            largest = max(files[first], key=files[first].__getitem__)
            rate = await _measure_rate(client, f"/{first}/resolve/main/{largest}")
    return sizes, rate


async def _measure_rate(client: httpx2.AsyncClient, path: str) -> float:
    """Return the bytes per second of a file, from its first ones; 0 if none came."""
    received, began = 0, trio.current_time()
    with trio.move_on_after(_SAMPLE_SECONDS + SECONDS) as limit:
        try:
            async with client.stream("GET", path) as answer:
                answer.raise_for_status()
                began = trio.current_time()
                limit.deadline = began + _SAMPLE_SECONDS
                async for piece in answer.aiter_raw():
                    received += len(piece)
                    if received >= _SAMPLE_BYTES:
                        break
        except httpx2.HTTPError:
            pass
    return received / max(trio.current_time() - began, 1e-3)
