"""Answers sent in pieces, with a minimum rate for their readers."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from greenroom.http.encoding.problem_documents import AnswerCutError
from greenroom.http.transport.socket_stream import GRACE, LEAST_RATE, PIECE_BYTES, PacedAnswer

DATA = bytes(range(256)) * (16 * PIECE_BYTES // 256) + b"end"


async def read(rate: float) -> bytes:
    """Return the bytes received by a client that reads `rate` bytes a second."""
    received = b""
    async with PacedAnswer(DATA) as body:
        async for piece in body:
            received += piece
            await trio.sleep(len(piece) / rate)
    return received


async def test_a_reader_that_is_fast_enough_gets_everything(autojump_clock: trio.testing.MockClock) -> None:
    assert await read(LEAST_RATE) == DATA
    assert trio.current_time() > GRACE / 2


async def test_a_reader_that_takes_too_little_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(AnswerCutError):
        await read(LEAST_RATE / 4)
    assert trio.current_time() < GRACE + len(DATA) / LEAST_RATE


async def test_others_have_their_turn_between_two_pieces() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery, PacedAnswer(DATA) as body:
        nursery.start_soon(other)
        pieces = [piece async for piece in body]
        nursery.cancel_scope.cancel()
    assert turns >= len(pieces) > 16
