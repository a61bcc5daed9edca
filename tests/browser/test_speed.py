"""The pages are quick: on the screen at once, light, and answering to clicks under a fast stream."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial

from greenroom.tests.browser.page import Page
from greenroom.tests.browser.stand_in import standing_in, text_events
from greenroom.tests.support.pages.compress_pages import LARGEST
from greenroom.tests.support.servers.server_processes import ServerProcess

FIRST_PAINT_MS = 300
LONG_TASK_MS = 50
TOKENS_PER_SECOND = 500
SECONDS = 6
TRIES = 5


def test_the_first_paint_comes_at_once(page: Page, server: ServerProcess) -> None:
    paints = []
    script = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    for _ in range(9):
        page.open(server.address)
        paints.append(float(page.wait(lambda: page.run(script))))
    print(f"first contentful paint: {sorted(paints)} ms")
    assert statistics.median(paints) < FIRST_PAINT_MS


def test_all_that_goes_over_the_wire_is_light(page: Page, server: ServerProcess) -> None:
    page.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    page.open(server.address)
    page.wait(lambda: len(page.texts("select option")) > 1)
    page.go("#control/models")
    page.wait(lambda: page.all(".server"))
    sizes = page.run(
        "return performance.getEntries().filter((each) => each.entryType === 'navigation'"
        "|| each.name.includes('/pages/')).map((each) => each.transferSize)"
    )
    print(f"{sum(sizes)} bytes in {len(sizes)} files")
    assert len(sizes) > 30
    assert 10_000 < sum(sizes) < LARGEST


def _fast() -> Iterator[str]:
    began = time.monotonic()
    for number in range(TOKENS_PER_SECOND * SECONDS):
        yield f"word{number} " if number % 40 else "\n\n- **a** `b` [c](https://example.org)\n\n"
        time.sleep(max(0.0, began + number / TOKENS_PER_SECOND - time.monotonic()))


def test_a_fast_stream_leaves_the_page_answering(page: Page) -> None:
    """The bar holds for the best try: a task's time is wall time, in which other processes may run too."""
    tries: list[list[int]] = []
    with standing_in() as server:
        server.answer = lambda: text_events(_fast())
        while len(tries) < TRIES and (not tries or tries[-1]):
            tries.append(_long_tasks(page, server.address))
    print(f"long tasks of each try: {tries} ms")
    assert tries[-1] == []


def _long_tasks(page: Page, address: str) -> list[int]:
    page.open(address)
    page.ask("Go")
    page.wait(lambda: page.run("return document.querySelectorAll('.markdown li').length") > 5)
    page.run("longTasks.length = 0")
    began = time.monotonic()
    page.press("Settings")
    page.press("Settings")
    print(f"two clicks took {time.monotonic() - began:.2f} s")
    page.wait(lambda: page.all('.entry.answer[aria-busy="false"]'))
    # Before the test reads the whole text, which is a task of its own.
    long = [round(each) for each in page.run("return longTasks")]
    assert f"word{TOKENS_PER_SECOND * SECONDS - 1}" in page.answer()
    return [each for each in long if each >= LONG_TASK_MS]


def test_four_thousand_messages_scroll(page: Page) -> None:
    with standing_in() as server:
        contents = ([{"type": "input_text", "text": f"m{number}"}] for number in range(4_000))
        items = [
            {
                "id": f"i{number}",
                "type": "message",
                "role": ("user", "assistant")[number % 2],
                "content": content,
            }
            for number, content in enumerate(contents)
        ]
        documents = server.documents
        documents["/v1/conversations"] = {"data": [], "has_more": False}
        documents["/v1/conversations/conv_1"] = {"id": "conv_1", "metadata": {"title": "Long"}}
        documents["/v1/conversations/conv_1/items"] = {"data": items, "has_more": False, "last_id": "i3999"}
        page.open(server.address, "#chat/conv_1")
        page.wait(lambda: any("m3999" in text for text in page.texts(".entry")))
        page.run("longTasks.length = 0")
        for _ in range(10):
            shown = len(page.all(".entry"))
            page.run("document.querySelector('.pane').scrollTop = 0")
            page.wait(partial(_has_more, page, shown))
        long = [round(each) for each in page.run("return longTasks")]
        print(f"{len(page.all('.entry'))} messages on the page; long tasks while scrolling: {long} ms")
        assert max(long, default=0) < 200


def _has_more(page: Page, shown: int) -> bool:
    return len(page.all(".entry")) > shown
