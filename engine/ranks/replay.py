"""One scheduler for all ranks: rank 0 sends the operations of its caches, and the others repeat them.

Plans and activations travel in the same direction around the ring: 0, n-1, …, 1, 0. Rank n-1 has the first
layers and rank 0 the last ones, so that rank 0 alone has logits, and samples. A plan is a list of operations
on numbered caches; a pass of the model is the last operation of its plan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import msgspec
import numpy as np

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.remote_layers import Operation, RemoteCaches, RemoteLayers
from greenroom.engine.ranks.pipelined_model import Part
from greenroom.engine.text.prefix_cache import kv_tensors

_FRAME = 2048  # Bytes of a plan's first message, which most plans fit into

_LENGTH = struct.Struct(">I")


class Link:
    """Sending and receiving around the ring of ranks, in the order of the calls.

    All transfers of a process use one stream, so that both ends agree about their order.
    """

    def __init__(self, group: Any) -> None:
        self.rank: int = group.rank()
        self.size: int = group.size()
        self._group = group
        self._stream = mx.new_stream(mx.cpu)

    def send(self, array: mx.array) -> mx.array:
        """Start to send an array to the next rank; evaluate the result to wait until it has left."""
        to = (self.rank - 1) % self.size
        sent: mx.array = mx.distributed.send(array, to, group=self._group, stream=self._stream)
        mx.async_eval(sent)
        return sent

    def receive(self, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        """Start to receive an array from the rank before."""
        source = (self.rank + 1) % self.size
        received: mx.array = mx.distributed.recv(shape, dtype, source, group=self._group, stream=self._stream)
        mx.async_eval(received)
        return received

    def send_plan(self, plan: bytes) -> None:
        data = _LENGTH.pack(len(plan)) + plan
        self.send(mx.array(np.frombuffer(data[:_FRAME].ljust(_FRAME, b"\0"), np.uint8)))
        if len(data) > _FRAME:
            self.send(mx.array(np.frombuffer(data[_FRAME:], np.uint8)))

    def receive_plan(self) -> bytes:
        first = np.array(self.receive((_FRAME,), mx.uint8)).tobytes()
        (length,) = _LENGTH.unpack_from(first)
        rest = length + _LENGTH.size - _FRAME
        more = np.array(self.receive((rest,), mx.uint8)).tobytes() if rest > 0 else b""
        return (first + more)[_LENGTH.size : _LENGTH.size + length]


class Leader:
    """Rank 0's side: makes a part of a model compute and cache as if it were the whole one.

    Args:
        model: The model that `part` has changed; calls of it and its new caches include the other ranks'.
    """

    def __init__(self, model: Any, part: Part, link: Link) -> None:
        self._part, self._link = part, link
        self._remote = RemoteCaches(part.other_kinds)
        part.receive = link.receive
        kind = type(model)
        leader = self

        def compute(self: Any, tokens: mx.array, cache: Cache) -> mx.array:
            first, *own = cache
            leader._forward(first, tokens)
            logits: mx.array = kind.__call__(self, tokens, cache=part.spread(own))
            return logits

        model.make_cache = lambda: [RemoteLayers.new(self._remote), *part.new_cache()]
        members = {"__call__": compute, "__module__": kind.__module__}
        model.__class__ = type(kind.__name__, (kind,), members)

    def flush(self) -> None:
        """Let the others repeat what no pass follows: mostly they release memory."""
        self._send(self._remote.pop_operations())

    def rest(self, seen: int) -> None:
        """Let the others wait for plans no more until the command after the first `seen`: MLX waits for a
        transfer by asking again and again, which would keep a core of each host busy.
        """
        self._send([*self._remote.pop_operations(), ("rest", seen)])

    def _send(self, operations: Sequence[Operation]) -> None:
        if operations:
            self._link.send_plan(msgspec.msgpack.encode(operations))

    def _forward(self, layers: RemoteLayers, tokens: mx.array) -> None:
        self._send([*self._remote.pop_operations(), ("forward", layers.number, *tokens.shape)])
        self._link.send(tokens.astype(mx.int32))


class Follower:
    """The side of the other ranks: repeats rank 0's operations on the own layers' caches.

    Args:
        on_progress: Callback after each piece of work.
        rest: Function that waits, without work, until rank 0 has got more than some number of commands.
    """

    def __init__(
        self, part: Part, link: Link, on_progress: Callable[[], None], rest: Callable[[int], None]
    ) -> None:
        self._part, self._link, self._on_progress, self._rest = part, link, on_progress, rest
        self._caches: dict[int, Cache] = {}
        self._tensors: dict[int, kv_tensors.LayerTensors] = {}
        part.receive = link.receive

    def run(self) -> None:
        """Repeat plans for ever."""
        while True:
            self.repeat(self._link.receive_plan())

    def repeat(self, plan: bytes) -> None:
        """Pass a plan on, and repeat its operations."""
        self._on_progress()
        if self._link.rank > 1:
            self._link.send_plan(plan)
        for name, *arguments in msgspec.msgpack.decode(plan):
            self._repeat(name, arguments)
        self._on_progress()

    def _repeat(self, name: str, arguments: list[Any]) -> None:
        match name, arguments:
            case "forward", (number, rows, tokens):
                self._forward(self._caches[number], (rows, tokens))
            case "new", (number,):
                self._caches[number] = self._part.new_cache()
            case "copy", (number, source):
                self._caches[number] = caches.shallow_copy(self._caches[source])
            case "merge", (number, sources):
                self._caches[number] = caches.merge([self._caches[each] for each in sources])
            case "extend", (number, other):
                caches.extend(self._caches[number], self._caches[other])
            case "filter", (number, rows):
                caches.filter_rows(self._caches[number], rows)
            case "extract", (number, source, row):
                self._caches[number] = caches.extract(self._caches[source], row)
            case "prepare", (number, lengths, padding):
                caches.prepare(self._caches[number], lengths, padding)
            case "finalize", (number,):
                caches.finalize(self._caches[number])
            case "rest", (seen,):
                self._rest(seen)
            case "drop", (numbers,):
                for number in numbers:
                    self._caches.pop(number, None)
                    self._tensors.pop(number, None)
            case _:
                self._repeat_stored(name, arguments)

    def _repeat_stored(self, name: str, arguments: list[Any]) -> None:
        """Repeat an operation of the prefix cache."""
        match name, arguments:
            case "copy_kv", (number, source, row, start, stop, length):
                made = kv_tensors.copy_kv(self._caches[source], row, start, stop, length)
            case "copy_states", (number, source, row):
                made = kv_tensors.copy_states(self._caches[source], row)
            case "slice_kv", (number, source, start, stop):
                made = kv_tensors.slice_kv(self._tensors[source], start, stop)
            case "restore", (number, segments, states, length, room):
                stored = [self._tensors[each] for each in segments]
                of_states = () if states is None else self._tensors[states]
                for _ in kv_tensors.restore(self._caches[number], stored, of_states, length, room):
                    pass
                return
            case _:
                raise ValueError(f"the plan has an unknown operation {name!r}")
        mx.async_eval([array for array in kv_tensors.arrays_of(made) if array is not None])
        self._tensors[number] = made

    def _forward(self, cache: Cache, shape: tuple[int, int]) -> None:
        is_first = self._part.start == 0
        tokens = self._link.receive(shape, mx.int32) if is_first else mx.zeros(shape, mx.int32)
        self._part.compute(tokens, cache)
        hidden, self._part.hidden = self._part.hidden, None
        assert hidden is not None
        sent = self._link.send(hidden)
        mx.eval(sent, caches.state(cache))


def layer_ranges(split: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield each rank's layers, `start` to `stop`: rank 0 has the last ones. `split`: number by rank."""
    stop = sum(split)
    for count in split:
        yield stop - count, stop
        stop -= count


def even_split(layers: int, ranks: int) -> tuple[int, ...]:
    """Return the number of layers of each rank."""
    base, extra = divmod(layers, ranks)
    return tuple(base + (rank < extra) for rank in range(ranks))
