"""One scheduler for all ranks: rank 0 sends the operations of its caches, and the others repeat them.

Plans travel around the ring from rank 0 to n-1, …, 1, and so do the activations of a pipeline, of which rank
n-1 has the first layers and rank 0 the last ones. Rank 0 alone has logits, and samples. A plan is a list of
operations on numbered caches; a pass of the model is the last operation of its plan.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import msgspec
import numpy as np

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.remote_layers import RemoteCaches, RemoteLayers
from greenroom.engine.ranks.divided_model import Part
from greenroom.engine.resources.device_errors import DeviceError
from greenroom.engine.text.prefix_cache import kv_tensors

_FRAME = 2048  # Bytes of a plan's first message, which most plans fit into
_LENGTH = 4  # Bytes of its length before it


class Link:
    """Sending and receiving around the ring of ranks, in the order of the calls.

    All transfers of a process use one stream, so that both ends agree about their order: that of the model's
    own transfers, too, if each layer is divided among the ranks (`shares_layers`).
    """

    def __init__(self, group: Any, *, shares_layers: bool = False) -> None:
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.group = group
        self._stream = mx.default_stream(mx.cpu) if shares_layers else mx.new_stream(mx.cpu)

    def send(self, array: mx.array) -> mx.array:
        """Start to send an array to the next rank; evaluate the result to wait until it has left."""
        to = (self.rank - 1) % self.size
        sent: mx.array = mx.distributed.send(array, to, group=self.group, stream=self._stream)
        mx.async_eval(sent)
        return sent

    def receive(self, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
        """Start to receive an array from the rank before."""
        source = (self.rank + 1) % self.size
        received: mx.array = mx.distributed.recv(shape, dtype, source, group=self.group, stream=self._stream)
        mx.async_eval(received)
        return received

    def send_plan(self, plan: bytes) -> None:
        data = len(plan).to_bytes(_LENGTH, "big") + plan
        self.send(mx.array(np.frombuffer(data[:_FRAME].ljust(_FRAME, b"\0"), np.uint8)))
        if len(data) > _FRAME:
            self.send(mx.array(np.frombuffer(data[_FRAME:], np.uint8)))

    def receive_plan(self) -> bytes:
        data = np.array(self.receive((_FRAME,), mx.uint8)).tobytes()
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
        if end > _FRAME:
            data += np.array(self.receive((end - _FRAME,), mx.uint8)).tobytes()
        return data[_LENGTH:end]


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

        def compute(_: Any, tokens: mx.array, cache: Cache) -> mx.array:
            layers, *own = cache
            self._send("forward", layers, *tokens.shape)
            if part.group is None:
                link.send(tokens.astype(mx.int32))
            try:
                return part.compute(tokens, own)
            except Exception as error:  # after which no transfer of the others is what this one expects
                raise DeviceError(f"the pass of rank 0 failed: {error}") from error

        model.make_cache = lambda: [RemoteLayers.new(self._remote), *part.new_cache()]
        members = {"__call__": compute, "__module__": kind.__module__}
        model.__class__ = type(kind.__name__, (kind,), members)

    def flush(self) -> None:
        """Send the operations that no pass follows, mostly releases of memory, to the other ranks."""
        self._send()

    def rest(self, seen: int) -> None:
        """Let the others wait for plans no more until the command after the first `seen`: MLX waits for a
        transfer by asking again and again, which would keep a core of each host busy.
        """
        self._send("rest", seen)

    def _send(self, *last: Any) -> None:
        if plan := self._remote.pop_plan(*last):
            self._link.send_plan(plan)


class Follower:
    """The side of the other ranks: repeats rank 0's operations on the own layers' caches.

    Args:
        on_progress: Callback after each piece of work.
        rest: Function that waits, without work, until rank 0 has got more than some number of commands.
    """

    def __init__(
        self, part: Part, link: Link, on_progress: Callable[[], None], rest: Callable[[int], None]
    ) -> None:
        self._part, self._link, self._on_progress = part, link, on_progress
        self._objects: dict[int, Any] = {}
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._object)
        self._operations: dict[str, Callable[..., Any]] = {"forward": self._forward, "rest": rest}
        for function in (
            *(part.new_cache, caches.shallow_copy, copy.deepcopy, caches.merge, caches.extend),
            *(caches.filter_rows, caches.extract, caches.prepare, caches.finalize, self.drop, restore),
        ):
            self._operations[function.__name__] = function
        for copying in (kv_tensors.copy_kv, kv_tensors.copy_states, kv_tensors.slice_kv):
            self._operations[copying.__name__] = _starting(copying)
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
        for operation in msgspec.msgpack.decode(plan, type=list[msgspec.Raw]):
            name, number, *arguments = self._decoder.decode(operation)
            made = self._operations[name](*arguments)
            if number:
                self._objects[number] = made
        self._on_progress()

    def drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._objects.pop(number, None)

    def _object(self, _: int, number: memoryview) -> Any:
        return self._objects[int.from_bytes(number, "big")]

    def _forward(self, cache: Cache, rows: int, count: int) -> None:
        part, shape = self._part, (rows, count)
        is_first = part.start == 0 and part.group is None
        part.compute(self._link.receive(shape, mx.int32) if is_first else mx.zeros(shape, mx.int32), cache)
        hidden, part.hidden = part.hidden, None
        assert hidden is not None
        mx.eval(self._link.send(hidden) if part.group is None else hidden, caches.state(cache))


def restore(cache: Cache, *arguments: Any) -> None:
    for _ in kv_tensors.restore(cache, *arguments):
        pass


def _starting(copying: Callable[..., kv_tensors.LayerTensors]) -> Callable[..., kv_tensors.LayerTensors]:
    def start(*arguments: Any) -> kv_tensors.LayerTensors:
        made = copying(*arguments)
        mx.async_eval([array for array in made if array is not None])
        return made

    return start
