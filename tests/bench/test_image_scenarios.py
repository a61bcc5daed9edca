"""Image scenarios: the images they send, and the requests that repeat them."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from PIL import Image

from greenroom.notes.scenarios.images import Images, ImagesAmongStreams
from greenroom.tests.bench.load_client import LoadClient, Prompts, find_endpoint, open_response_recorder
from greenroom.tests.bench.scenarios import Scenario
from greenroom.tests.bench.servers import TargetServer
from greenroom.tests.support.servers.bench_servers import scripted_server, stream_answer

SIZES = ((32, 48), (40, 40))


async def sent(scenario: Scenario) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the bodies that one run of a scenario sends, and its measured values."""
    with scripted_server(stream_answer) as (address, bodies):
        async with open_response_recorder() as recorder:
            target = TargetServer(LoadClient(await find_endpoint(address, None, "none"), recorder))
            sample = await scenario.run(target, Prompts(), 1)
    return bodies, dict(sample.values)


def images_in(body: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the sizes of a request's images."""
    parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size for url in urls]


async def test_images_are_new_for_each_stream_and_the_same_in_its_second_turn() -> None:
    bodies, values = await sent(Images(2, 5, 8, SIZES))
    assert [images_in(body) for body in bodies] == [list(SIZES)] * 4
    carried = [json.dumps(body["messages"][0]) for body in bodies]
    assert carried[0] != carried[1]
    assert set(carried[2:]) == set(carried[:2])
    assert [len(body["messages"]) for body in bodies] == [1, 1, 3, 3]
    assert values["again_over_first"] > 0


async def test_a_message_with_images_joins_streams_of_text_and_comes_alone() -> None:
    scenario = ImagesAmongStreams(streams=2, tokens=24, undisturbed=4, stream_words=4, sizes=SIZES)
    bodies, _ = await sent(scenario)
    among, alone = [body for body in bodies if images_in(body)]
    assert images_in(among) == images_in(alone) == list(SIZES)
    assert (among["max_tokens"], alone["max_tokens"]) == (24, 1)
    assert among["messages"] != alone["messages"]
    assert [images_in(body) for body in bodies].count([]) >= 2
