"""Socket clients that read slowly."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from greenroom.http.transport.socket_stream import PIECE_BYTES, SocketStream


async def test_a_reader_that_takes_a_little_now_and_then_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.socket.socketpair()
    stream = SocketStream(trio.SocketStream(ours), send_timeout=60)

    async def read_slowly() -> None:
        with theirs:
            while True:
                await trio.sleep(30)
                await theirs.recv(16 * 1024)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_slowly)
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(bytes(8 * PIECE_BYTES))
        assert trio.current_time() - began == pytest.approx(8 * 60, abs=1)
        nursery.cancel_scope.cancel()
