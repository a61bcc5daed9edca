"""CPU time of the server per streamed token while the chat and the control room are open, over that without.

    python notes/pages_cost.py MODEL_FOLDER [PAIRS [STREAMS [TOKENS]]]

Chromium runs all the time: for one side of each pair its two tabs show the pages, for the other nothing.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from greenroom.notes.paired_costs import LIMIT, measure_pairs
from greenroom.notes.protocol_costs import Load
from greenroom.tests.bench.servers import open_local_server
from greenroom.tests.browser.page import Page, chromium

PLACES = ("#chat", "#control/models")
# Headless Chromium takes a tab behind another one for seen only with these.
SEEN = ("--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding")


def open_tabs(page: Page, address: str) -> None:
    """Open each page in a tab, and wait until it shows the server."""
    for number, place in enumerate(PLACES):
        page.driver.switch_to.window(page.driver.window_handles[number])
        page.open(address, place)
        page.one(".composer" if place == "#chat" else ".server")
        assert page.run("return document.hidden") is False


def empty_tabs(page: Page) -> None:
    for handle in page.driver.window_handles:
        page.driver.switch_to.window(handle)
        page.driver.get("about:blank")


async def main(folder: str, pairs: int = 9, streams: int = 16, tokens: int = 1_000) -> None:
    with chromium(*SEEN) as page:
        page.driver.switch_to.new_window("window")
        async with open_local_server(folder) as server:

            @asynccontextmanager
            async def pages() -> AsyncIterator[None]:
                await trio.to_thread.run_sync(open_tabs, page, server.address)
                try:
                    yield
                finally:
                    await trio.to_thread.run_sync(empty_tabs, page)

            found = await measure_pairs(Load(server, streams, tokens), pages, pairs)
    print(found.line())
    sys.exit(statistics.median(found.ratios) > LIMIT)


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], *map(int, sys.argv[2:])))
