"""A rank's work: its part of the model, and on rank 0 the text engine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import named_load_errors
from greenroom.engine.loading.load_model import allow_foreign_code, load_text_lazily
from greenroom.engine.loading.read_weights import read_weights, recorded_files, weight_bytes
from greenroom.engine.ranks.agreement import agreement_of, check_agreement
from greenroom.engine.ranks.divided_model import (
    IndivisibleError,
    Part,
    even_split,
    layers_of,
    shard,
    trace_chain,
)
from greenroom.engine.ranks.messages import Commands, Message, Reports
from greenroom.engine.ranks.replay import Follower, Leader, Link
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.text.text_engine import TextEngine, open_text_engine
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, load_failed

_SNAPSHOT_SECONDS = 0.25
_PREPARING_SECONDS = 0.5  # between signs of progress while another thread prepares a prompt


class Rank:
    """One rank from its start to its end.

    Args:
        start: `rank`, `hosts` (addresses by rank, in the form of `MLX_HOSTFILE`), `backend`, `model` (its
            name), `folder`, `settings`, `record`, `split` (layers by rank; None for an even split), and the
            operator's texts `template` and `system_prompt`. With `hosts`: also `host`, its name; `rdma`,
            devices by rank for JACCL; `memory_bytes`, the most that it may take there; `agreement`, `files`.
    """

    def __init__(self, start: dict[str, Any], commands: Commands, reports: Reports) -> None:
        self._start, self._commands, self._reports, self._woken = start, commands, reports, 0
        self._folder, self._settings = Path(start["folder"]), start["settings"]
        if (limit := start.get("memory_bytes")) is not None:
            self._settings = attrs.evolve(self._settings, memory_bytes=limit)
        self._shares_layers = self._settings.parallelism == "tensor"

    def run(self) -> None:
        self._check_host()
        allow_foreign_code(self._settings.trust_remote_code)
        use_device(self._settings)
        self._reports.tell(stage="joining")
        self._commands.get()  # ("join",), once none imports: MLX holds the interpreter until all have joined
        os.environ.update(join_variables(self._start))
        group = mx.distributed.init(strict=True, backend=self._start["backend"])
        link = Link(group, shares_layers=self._shares_layers)
        self._reports.tell(stage="loading")
        (self._follow if link.rank else self._lead)(link)

    def _check_host(self) -> None:
        """Refuse to load if MLX cannot speak to the others here, or if the plan, libraries or files of this
        host differ from those of the parent's.
        """
        start = self._start
        if not mx.distributed.is_available(start["backend"]):
            host = start.get("host", "this machine")
            where = f"backend '{start['backend']}' of hosts: MLX has none on {host}"
            if start["backend"] == "jaccl":
                where += ". JACCL needs macOS 26.2 or later and Thunderbolt 5; use backend 'ring'"
            raise ProblemError(load_failed(start["model"], f"{where}."))
        if (expected := start.get("agreement")) is None:
            return  # all ranks are of one machine
        plan = {"model": start["model"], "split": start["split"], "ring": start["hosts"]}
        try:
            check_agreement(expected, agreement_of(self._folder, start["files"], plan), start["host"])
        except ValueError as error:
            raise ProblemError(load_failed(start["model"], f"{error}.")) from error

    def _load_part(self, link: Link) -> tuple[Any, Part, int | None]:
        """Return the model with lazy weights, the part that this rank computes, and rank 0's most bytes of KV
        caches.
        """
        model = load_text_lazily(self._folder, self._settings)
        try:
            part, split = self._divide(model, link)
        except IndivisibleError as error:
            detail = f"it cannot be divided among ranks: {error}"
            raise ProblemError(load_failed(self._folder.name, detail)) from error
        self._reports.tell(nbytes=weight_bytes(model), layers=split[link.rank])
        _, kv_bytes = self._commands.get()  # ("load", …), once the weights of all ranks have been charged
        return model, part, kv_bytes

    def _divide(self, model: Any, link: Link) -> tuple[Part, tuple[int, ...]]:
        chain = trace_chain(model)
        layers = len(chain.layers)
        if self._shares_layers:
            shard(model, chain, link.group)
            return Part(model, chain, 0, layers, link.group), (layers,) * link.size
        split = tuple(self._start["split"] or even_split(layers, link.size))
        if len(split) != link.size or sum(split) != layers or min(split) < 1:
            told = f"its {layers} layers cannot be divided among {link.size} ranks as {split}"
            raise IndivisibleError(told)
        return Part(model, chain, *layers_of(link.rank, split)), split

    def _follow(self, link: Link) -> None:
        with named_load_errors(self._folder):
            with recorded_files(lambda: False) as files:
                model, part, _ = self._load_part(link)
            read_weights(model, files, self._load, lambda: False)
        self._reports.tell(stage="ready")
        Follower(part, link, self._reports.advance, self._rest).run()

    def _load(self, fraction: float) -> None:
        self._reports.advance(loaded=fraction)

    def _rest(self, seen: int) -> None:
        while self._woken <= seen:
            _, self._woken = self._commands.get()  # ("wake", commands that rank 0 has got by then)

    def _lead(self, link: Link) -> None:
        name, record, settings = self._start["model"], self._start["record"], self._settings
        template = self._start["template"]
        tokenizer = load_tokenizer(self._folder, settings.trust_remote_code, name, template)
        adapter = make_adapter(record, tokenizer, settings, self._start["system_prompt"])
        leaders: list[Leader] = []
        account = MemoryAccount(settings.memory_bytes)

        def load_lazily(folder: Path, settings: Any) -> Any:
            model, part, account.kv_limit = self._load_part(link)
            leaders.append(Leader(model, part, link))
            return model

        load = ModelLoad(self._folder, record, settings, self._load, account=account)
        engine = open_text_engine(load, adapter, load_lazily, is_part=True)
        self._reports.tell(stage="ready")
        LeadingLoop(engine, leaders[0], adapter, self._commands, self._reports).run()


def join_variables(start: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables by which MLX finds the other ranks, as `mlx.launch` sets them."""
    rank = str(start["rank"])
    if start["backend"] == "ring":
        return {"MLX_RANK": rank, "MLX_HOSTFILE": _unnamed_file(start["hosts"])}
    devices, [coordinator] = _unnamed_file(start["rdma"]), start["hosts"][0]
    return {"MLX_RANK": rank, "MLX_IBV_DEVICES": devices, "MLX_JACCL_COORDINATOR": coordinator}


def _unnamed_file(content: Any) -> str:
    """Return a path from which this process can read JSON: a rank that is killed leaves no file behind."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        json.dump(content, file)
    return f"/dev/fd/{reader}"


class LeadingLoop:
    """Rank 0's loop: commands of the parent in, events of the text engine out."""

    def __init__(
        self, engine: TextEngine, leader: Leader, adapter: Adapter, commands: Commands, reports: Reports
    ) -> None:
        self._engine, self._leader, self._adapter = engine, leader, adapter
        self._commands, self._reports = commands, reports
        self._preparing: dict[str, bool] = {}  # True for those that are cancelled meanwhile
        self._preparer = ThreadPoolExecutor(1)
        self._reported, self._seen = 0.0, 0

    def run(self) -> None:
        engine = self._engine
        while True:
            for command in self._next_commands():
                self._seen += command[0] != "prepared"
                self._carry_out(*command)
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
            seconds = _PREPARING_SECONDS if self._preparing else self._engine.idle_delay
            if seconds is None:
                self._leader.rest(self._seen)
            else:
                self._leader.flush()
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
                self._preparing[request.id] = False
                future = self._preparer.submit(self._adapter.prepare_input, request)
                future.add_done_callback(lambda made: self._commands.put(("prepared", request, made)))
            case "prepared", (request, made):
                self._submit(request, made.result)
                if self._preparing.pop(request.id):  # its first step ends it as any other
                    self._engine.cancel(request.id)
            case "submit", (request, prepared):
                self._submit(request, lambda: prepared)
            case "cancel", (str(request_id),):
                if request_id in self._preparing:
                    self._preparing[request_id] = True
                self._engine.cancel(request_id)
            case "release_caches", ():
                self._engine.release_caches()
                self._report([], with_figures=True)

    def _submit(self, request: InferenceRequest, prepare: Callable[[], PreparedPrompt]) -> None:
        try:
            self._engine.submit(request, prepare())
        except ProblemError as error:
            self._report([(request.id, Failed(error.problem))], with_figures=True)

    def _report(self, events: list[Any], *, with_figures: bool) -> None:
        figures = None
        if with_figures:
            figures, self._reported = self._engine.snapshot(), time.monotonic()
        self._reports.put("events", events, figures)
