"""A rank: a process that holds some of a model's layers, and computes them as rank 0 plans.

Greenroom's own process joins no group of ranks: a group is for the life of a process, and a stopped peer
hangs for ever. Rank 0, a child as well, runs the ordinary text engine. Commands come on standard input;
reports and beats leave on standard output. The end of the input ends the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs

from greenroom.engine.ranks.messages import FrameReader, Message, frame
from greenroom.schemas.settings.hosts import THIS_HOST

if TYPE_CHECKING:
    from greenroom.engine.adapters.adapter import Adapter
    from greenroom.engine.ranks.pipelined_model import Part
    from greenroom.engine.ranks.replay import Leader, Link
    from greenroom.engine.text.text_engine import TextEngine
    from greenroom.schemas.messages.prepared_input import PreparedPrompt
    from greenroom.schemas.messages.requests import InferenceRequest

BEAT_SECONDS = 0.5
_SNAPSHOT_SECONDS = 0.25
_POLL_SECONDS = 0.01  # between looks for a prompt that another thread prepares
_LINK_SECONDS = 15  # Time without a sign of life of a parent on another machine
_PR_SET_PDEATHSIG = 1


class Reports:
    """The reports of a rank to its parent; all methods may be called on any thread.

    Attributes:
        progress: Counter that changes with each piece of work, so that one who waits in a transfer is seen.
        loaded: Loaded fraction of the weights.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.progress, self.loaded = 0, 0.0
        self._stream = stream
        self._lock = threading.Lock()

    def advance(self) -> None:
        self.progress += 1

    def load(self, fraction: float) -> None:
        self.loaded = fraction
        self.progress += 1

    def put(self, *message: Any) -> None:
        data = frame(message)
        with self._lock:
            self._stream.write(data)
            self._stream.flush()

    def beat_forever(self) -> None:
        while True:
            self.put("beat", self.progress, self.loaded)
            time.sleep(BEAT_SECONDS)


def main() -> None:
    """Run one rank until its input ends. What libraries print goes to standard error."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also ends a stopped process
    commands: SimpleQueue[Message] = SimpleQueue()
    given, reports = os.dup(0), Reports(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    threading.Thread(target=_read_commands, args=(given, commands), daemon=True).start()
    _, start = commands.get()
    threading.Thread(target=reports.beat_forever, daemon=True).start()
    from greenroom.schemas.problems import ProblemError

    try:
        Rank(dict(start), commands, reports).run()
    except ProblemError as error:
        reports.put("refused", error.problem)
    except BaseException as error:
        if not str(error).startswith("[ring]"):  # a lost peer, of which the parent tells
            traceback.print_exc()
        reports.put("failed", f"{type(error).__name__}: {error}"[:500])
    os._exit(0)  # without waiting for transfers that never end


def _read_commands(given: int, commands: SimpleQueue[Message]) -> None:
    """Read commands until the parent has closed the input, is gone, or says what nobody understands.

    A cut link ends no input: if the parent, on another machine, has long been silent, that ends the process,
    too. Seconds of waits are counted: while a library holds the interpreter, nobody hears the parent.
    """
    reader, silent, is_far = FrameReader(), 0, False
    try:
        while not is_far or silent < _LINK_SECONDS:
            if not select.select([given], [], [], 1.0)[0]:
                silent += 1
                continue
            silent = 0
            if not (data := os.read(given, 1 << 20)):
                break
            for command in reader.feed(data):
                if command[0] == "start":
                    is_far = command[1].get("host", THIS_HOST.ssh) != THIS_HOST.ssh
                if command != ("alive",):
                    commands.put(command)
    finally:
        os._exit(0)


class Rank:
    """One rank from its start to its end.

    Args:
        start: `rank`, `hosts` (addresses by rank, in the form of `MLX_HOSTFILE`), `backend`, `model` (its
            name), `folder`, `settings`, `record`, `split` (layers by rank; None for an even split), and the
            operator's texts `template` and `system_prompt`. With `hosts`: also `host`, its name;
            `memory_bytes`, the most that it may take there; `agreement` and `files`.
    """

    def __init__(self, start: dict[str, Any], commands: SimpleQueue[Message], reports: Reports) -> None:
        self._start, self._commands, self._reports = start, commands, reports
        self._folder, self._settings = Path(start["folder"]), start["settings"]
        if (limit := start.get("memory_bytes")) is not None:
            self._settings = attrs.evolve(self._settings, memory_bytes=limit)

    def run(self) -> None:
        from greenroom.engine.loading.devices import use_device
        from greenroom.engine.loading.libraries import import_text_libraries, prefer_openblas
        from greenroom.engine.loading.load_model import allow_foreign_code

        self._check_host()
        prefer_openblas()
        allow_foreign_code(self._settings.trust_remote_code)
        import_text_libraries()
        use_device(self._settings)
        self._reports.put("joining")
        self._commands.get()  # ("join",), once none imports: MLX holds the interpreter until all have joined
        link = self._join()
        self._reports.put("loading")
        if link.rank:
            self._follow(link)
        else:
            self._lead(link)

    def _check_host(self) -> None:
        """Refuse to load if the plan, libraries or files of this host differ from those of the parent's."""
        from greenroom.engine.ranks.agreement import agreement_of, check_agreement
        from greenroom.schemas.problems import ProblemError, load_failed

        start = self._start
        if (expected := start.get("agreement")) is None:
            return  # all ranks are of one machine
        plan = {"model": start["model"], "split": start["split"], "ring": start["hosts"]}
        try:
            check_agreement(expected, agreement_of(self._folder, start["files"], plan), start["host"])
        except ValueError as error:
            raise ProblemError(load_failed(start["model"], f"{error}.")) from error

    def _join(self) -> Link:
        """Join the group of ranks, which waits for all of them; the parent limits the time."""
        import mlx.core as mx

        from greenroom.engine.ranks.replay import Link

        # A pipe, since a rank that is killed while it joins would leave a file behind.
        hosts, writer = os.pipe()
        with os.fdopen(writer, "w") as file:
            json.dump(self._start["hosts"], file)
        os.environ.update(MLX_HOSTFILE=f"/dev/fd/{hosts}", MLX_RANK=str(self._start["rank"]))
        return Link(mx.distributed.init(strict=True, backend=self._start["backend"]))

    def _load_part(self, link: Link) -> tuple[Any, Part, int | None]:
        """Return the model with lazy weights, the part of it that this rank computes, and the most bytes of
        all ranks' KV caches.
        """
        from greenroom.engine.loading.load_model import load_text_lazily
        from greenroom.engine.loading.read_weights import weight_bytes
        from greenroom.engine.ranks.pipelined_model import NoChainError, Part, trace_chain
        from greenroom.engine.ranks.replay import even_split, layer_ranges
        from greenroom.schemas.problems import ProblemError, load_failed

        model = load_text_lazily(self._folder, self._settings)
        try:
            chain = trace_chain(model)
            layers = len(chain.layers)
            split = tuple(self._start["split"] or even_split(layers, link.size))
            if len(split) != link.size or sum(split) != layers or min(split) < 1:
                raise NoChainError(
                    f"its {layers} layers cannot be divided among {link.size} ranks as {split}"
                )
        except NoChainError as error:
            detail = f"it cannot be divided among ranks: {error}"
            raise ProblemError(load_failed(self._folder.name, detail)) from error
        part = Part(model, chain, *list(layer_ranges(split))[link.rank])
        self._reports.put("sized", weight_bytes(model), split[link.rank])
        _, kv_bytes = self._commands.get()  # ("load", …), once the weights of all ranks have been charged
        return model, part, kv_bytes

    def _follow(self, link: Link) -> None:
        from greenroom.engine.loading.libraries import named_load_errors
        from greenroom.engine.loading.read_weights import read_weights, recorded_files
        from greenroom.engine.ranks.replay import Follower

        with named_load_errors(self._folder):
            with recorded_files(lambda: False) as files:
                model, part, _ = self._load_part(link)
            read_weights(model, files, self._reports.load, lambda: False)
        self._reports.put("ready")
        Follower(part, link, self._reports.advance).run()

    def _lead(self, link: Link) -> None:
        from greenroom.engine.adapters.adapter import make_adapter
        from greenroom.engine.ranks.replay import Leader
        from greenroom.engine.resources.memory_account import MemoryAccount
        from greenroom.engine.resources.residence import ModelLoad
        from greenroom.engine.text.text_engine import open_text_engine
        from greenroom.engine.tokenizer.tokenizer import load_tokenizer

        name, record, settings = self._start["model"], self._start["record"], self._settings
        template = self._start["template"]
        tokenizer = load_tokenizer(self._folder, settings.trust_remote_code, name, template)
        adapter = make_adapter(record, tokenizer, settings, self._start["system_prompt"])
        leaders: list[Leader] = []
        account = MemoryAccount(settings.memory_bytes)

        def load_lazily(folder: Path, settings: Any) -> Any:
            model, part, kv_bytes = self._load_part(link)
            if kv_bytes is not None:
                account.kv_limit = round(kv_bytes * part.share)
            leaders.append(Leader(model, part, link))
            return model

        load = ModelLoad(self._folder, record, settings, self._reports.load, account=account)
        engine = open_text_engine(load, adapter, load_lazily, is_part=True)
        self._reports.put("ready")
        LeadingLoop(engine, leaders[0], adapter, self._commands, self._reports).run()


class LeadingLoop:
    """Rank 0's loop: commands of the parent in, events of the text engine out."""

    def __init__(
        self,
        engine: TextEngine,
        leader: Leader,
        adapter: Adapter,
        commands: SimpleQueue[Message],
        reports: Reports,
    ) -> None:
        self._engine, self._leader, self._adapter = engine, leader, adapter
        self._commands, self._reports = commands, reports
        self._preparing: dict[str, tuple[InferenceRequest, Future[PreparedPrompt]]] = {}
        self._cancelled: set[str] = set()
        self._preparer = ThreadPoolExecutor(1)
        self._reported = 0.0

    def run(self) -> None:
        from greenroom.schemas.events.events import Failed, Finished

        engine = self._engine
        while True:
            for command in self._next_commands():
                if command[0] == "close":
                    return
                self._carry_out(*command)
            self._submit_prepared()
            if engine.has_work:
                events = engine.step()
                self._reports.advance()
                due = time.monotonic() - self._reported > _SNAPSHOT_SECONDS
                ended = any(isinstance(event, Failed | Finished) for _, event in events)
                if events or due:
                    self._report(events, with_figures=due or ended)

    def _next_commands(self) -> Iterator[Message]:
        """Yield the commands that wait; if there is no work, wait for one, or do idle work."""
        if not self._engine.has_work:
            self._leader.flush()
            seconds = _POLL_SECONDS if self._preparing else self._engine.idle_delay
            try:
                yield self._commands.get(timeout=seconds)
            except Empty:
                if not self._preparing:
                    self._engine.work_idly()
                    self._report([], with_figures=True)
                self._reports.advance()
        while not self._commands.empty():
            yield self._commands.get()

    def _carry_out(self, name: str, *arguments: Any) -> None:
        self._reports.advance()
        match name, arguments:
            case "submit", (request, None):
                future = self._preparer.submit(self._adapter.prepare_input, request)
                self._preparing[request.id] = request, future
            case "submit", (request, prepared):
                self._engine.submit(request, prepared)
            case "cancel", (str(request_id),):
                self._cancel(request_id)
            case "release_caches", ():
                self._engine.release_caches()
                self._report([], with_figures=True)

    def _cancel(self, request_id: str) -> None:
        if request_id in self._preparing:
            self._cancelled.add(request_id)
        else:
            self._engine.cancel(request_id)

    def _submit_prepared(self) -> None:
        """Submit the requests whose grammars are ready."""
        from greenroom.schemas.events.events import Failed
        from greenroom.schemas.problems import ProblemError

        for request, future in [each for each in self._preparing.values() if each[1].done()]:
            del self._preparing[request.id]
            try:
                self._engine.submit(request, future.result())
                if request.id in self._cancelled:  # its first step ends it as any other
                    self._engine.cancel(request.id)
            except ProblemError as error:
                self._report([(request.id, Failed(error.problem))], with_figures=True)
            self._cancelled.discard(request.id)

    def _report(self, events: list[Any], *, with_figures: bool) -> None:
        figures = None
        if with_figures:
            figures, self._reported = self._engine.snapshot(), time.monotonic()
        self._reports.put("events", events, figures)


if __name__ == "__main__":
    main()
