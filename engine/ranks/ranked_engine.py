"""A model over several ranks, as its worker thread sees it: child processes, watched from outside."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from greenroom.engine.catalog.kind_detection import vlm_text_module
from greenroom.engine.catalog.operator_texts import chat_template_of, system_prompt_of
from greenroom.engine.loading.libraries import LoadAbandonedError
from greenroom.engine.ranks.messages import FrameReader, Message, frame
from greenroom.engine.ranks.placement import RankPlace, does_not_fit, local_places, why_indivisible
from greenroom.engine.ranks.survey import places_on
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.resources.residence import ModelLoad, charge_weights
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, Usage
from greenroom.schemas.events.statistics import EngineSnapshot, MemoryStatistics, RankFigures, RankStatus
from greenroom.schemas.problems import Problem, ProblemError, invalid, load_failed, rank_lost
from greenroom.schemas.settings.hosts import place_ranks, read_hosts

if TYPE_CHECKING:
    from greenroom.schemas.messages.prepared_input import PreparedPrompt
    from greenroom.schemas.messages.requests import InferenceRequest

SILENT_SECONDS = 3.0
"""Time without a beat, or without progress while there is work, after which a rank is lost."""
_IMPORT_SECONDS = 60.0  # The same while a rank imports libraries, which may hold its interpreter
_JOIN_SECONDS = 30.0  # Time for all ranks to find each other, unheard, and to read what the weights are
_READ_SECONDS = 4.0  # Time without progress while weights are read
_WAIT_SECONDS = 0.01  # Longest wait of a step, after which the engine's worker looks for commands
_PROGRESS_SECONDS = 0.2  # Longest time between two looks whether a load was abandoned
_CLOSE_SECONDS = 1.0  # Time for ranks to end by themselves
_READ_BYTES = 1 << 20
_GREETING_SECONDS = 1.0  # Time between the signs of life that ranks get, which on other machines end without


class RankChild:
    """One rank's process. Attributes: `status`, the last that it has told; `progressed` and `heard`, times of
    its last known progress and sign of life; `unsent`, bytes that its pipe has not taken yet.
    """

    def __init__(self, rank: int, place: RankPlace) -> None:
        self.rank, self.place = rank, place
        self.name = f"Rank {rank}" + ("" if place.is_local else f" on {place.host}")
        self.status, self.unsent, self._reader = RankStatus(), bytearray(), FrameReader()
        self.heard = self.progressed = time.monotonic()
        self.process = subprocess.Popen(
            place.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout
        os.set_blocking(self.input.fileno(), False)

    def put(self, *message: Any) -> None:
        """Send a message, now or in the next waits: a stopped process takes none."""
        self.unsent += frame(message)
        self.send_more()

    def send_more(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # whose end of output tells
            while self.unsent:
                del self.unsent[: os.write(self.input.fileno(), self.unsent)]

    def read(self) -> list[Message] | None:
        """Return the messages that have come, without beats; None once it has ended."""
        data = os.read(self.output.fileno(), _READ_BYTES)
        if not data:
            return None
        self.heard = now = time.monotonic()
        others: list[Message] = []
        for message in self._reader.feed(data):
            match message:
                case "beat", RankStatus(str(), int(), float(), int() | None, int() as layers) as status if (
                    layers > 0 or status.nbytes is None
                ):
                    self.progressed = self.progressed if status == self.status else now
                    self.status = status
                case ("refused" | "failed" | "events") as kind, *_ if kind != "events" or self.rank == 0:
                    others.append(message)
                    self.progressed = now
                case _:
                    raise ValueError("a rank has sent something else than its messages")
        return others

    def end_of_process(self) -> str:
        """Return the end of a process whose output has ended, as the end of a sentence."""
        try:
            status = self.process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "has closed its output"
        return f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"


class RankGroup:
    """The processes of one model's ranks, from their start to their end, and their memory on other machines.
    If a method finds that a rank is lost, it kills all and raises ProblemError (`rank_lost`).
    """

    def __init__(
        self, model: str, places: Sequence[RankPlace], start: dict[str, Any], account: MemoryAccount
    ) -> None:
        self._model = model
        self._shares: list[Share] = []
        self._ended, self._joined, self._greeted, self._commands = False, False, 0.0, 0
        self.children: list[RankChild] = []
        try:
            for rank, place in enumerate(places):
                if place.stage is not None and not place.is_local:
                    self._shares.append(share := Share(account.host(place.host)))
                    needed = place.stage.nbytes
                    if (room := share.charge_weights(needed)) is not None:
                        told = f"rank {rank} on {place.host} needs {needed:,} bytes and may have {room:,}"
                        raise does_not_fit(model, told, needed, room)
            hosts = [[each.address] for each in places]
            for rank, place in enumerate(places):
                self.children.append(RankChild(rank, place))
                self.children[-1].put("start", {**start, **place.start, "rank": rank, "hosts": hosts})
        except BaseException:
            self.kill()
            raise

    def figures(self) -> tuple[RankFigures, ...]:
        return tuple(
            RankFigures(place.host, place.address, place.link, status.layers, status.nbytes or 0)
            for place, status in ((child.place, child.status) for child in self.children)
        )

    @property
    def here(self) -> list[RankStatus]:
        """Status of the ranks on this machine."""
        return [child.status for child in self.children if child.place.is_local]

    def put_all(self, *message: Any) -> None:
        for child in self.children:
            child.put(*message)

    def command(self, *message: Any) -> None:
        """Send a command to rank 0, and wake the others, which wait for no plans while there is no work."""
        self._commands += 1
        for child in self.children:
            child.put(*(message if child.rank == 0 else ("wake", self._commands)))

    def wait(self, seconds: float, *, working: bool) -> list[Message]:
        """Return the messages beside signs of life. `working`: some rank must progress meanwhile."""
        if (now := time.monotonic()) - self._greeted > _GREETING_SECONDS:
            self._greeted = now
            self.put_all("alive")
        messages: list[Message] = []
        with selectors.PollSelector() as selector:
            for child in self.children:
                selector.register(child.output, selectors.EVENT_READ, child)
                if child.unsent:
                    selector.register(child.input, selectors.EVENT_WRITE, child)
            for key, events in selector.select(seconds):
                if events & selectors.EVENT_WRITE:
                    key.data.send_more()
                else:
                    messages += self._read(key.data)
        if not self._joined and all(child.status.stage == "joining" for child in self.children):
            self._joined = True
            self.put_all("join")
        for message in messages:
            match message:
                case "failed", str(text):
                    self._lose(None, f"failed: {text}")
                case "refused", Problem() as problem:
                    self.kill()
                    raise ProblemError(problem)
        self._check_silence(working)
        return messages

    def _read(self, child: RankChild) -> list[Message]:
        try:
            found = child.read()
        except Exception:  # whatever a process on another machine can write
            self._lose(child, "has sent no valid messages")
        if found is None:
            self._lose(child, child.end_of_process())
        return found

    def begin_work(self) -> None:
        """Start the clock of each rank anew, by which one without progress is lost."""
        for child in self.children:
            child.progressed = time.monotonic()

    def close(self) -> None:
        """End all processes, by themselves if they do."""
        for child in self.children:
            with suppress(OSError):
                child.input.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for child in self.children:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """Kill all processes, stopped ones too, and wait for their ends."""
        if self._ended:
            return
        self._ended = True
        for child in self.children:
            child.process.kill()
        for child in self.children:
            child.process.wait()
            child.input.close()
            child.output.close()
        for share in self._shares:
            share.close()

    def _check_silence(self, working: bool) -> None:
        now, limits = time.monotonic(), {"importing": _IMPORT_SECONDS, "joining": _JOIN_SECONDS}
        for child in self.children:
            limit = limits.get(child.status.stage, SILENT_SECONDS)
            if now - child.heard > limit:
                self._lose(child, f"has been silent for {limit:.0f} s")
        told = [child.status for child in self.children]
        if not working or any(status.stage == "importing" for status in told):
            return
        limit = SILENT_SECONDS
        if any(status.stage != "ready" for status in told):
            limit = _JOIN_SECONDS if any(status.nbytes is None for status in told) else _READ_SECONDS
        if now - max(child.progressed for child in self.children) > limit:
            self._lose(None, f"have made no progress for {limit:.0f} s; the link between them may be cut")

    def _lose(self, child: RankChild | None, what: str) -> NoReturn:
        killed = [each for each in self.children if (each.process.poll() or 0) < 0]
        if child is None and killed:  # the others only noticed it first
            child, what = killed[0], killed[0].end_of_process()
        self.kill()
        name = "The ranks" if child is None else child.name
        raise ProblemError(rank_lost(self._model, f"{name} {what}"))


class RankedEngine:
    """Engine of a text model whose layers are in other processes: an `Engine` for the model's worker.
    `share`: its share of the memory account, with the weights of the ranks on this machine.
    """

    def __init__(self, group: RankGroup, share: Share) -> None:
        self.group, self._share = group, share
        self._open = Counter[str]()  # Choices that have not ended, by request
        self._events: list[tuple[str, InferenceEvent]] = []
        memory = MemoryStatistics(share.weights, 0, 0, 0, None)
        self._figures = EngineSnapshot(0, 0, Usage(), memory, ranks=group.figures())

    @property
    def has_work(self) -> bool:
        return bool(self._open or self._events)

    def snapshot(self) -> EngineSnapshot:
        return self._figures

    def submit(self, request: InferenceRequest, prepared: PreparedPrompt) -> None:
        if prepared.adapter is not None:
            raise invalid("LoRA adapters do not work with a model over several ranks.", "adapter")
        if prepared.images:
            raise invalid("Images do not work with a model over several ranks.", "messages")
        try:
            # A grammar's matcher cannot be sent, so that rank 0 prepares such a request again.
            self.group.command("submit", request, prepared if prepared.matcher is None else None)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise invalid("The request cannot be sent to the ranks of its model.") from error
        if not self._open:
            self.group.begin_work()
        self._open[request.id] = prepared.choices

    def cancel(self, request_id: str) -> None:
        if request_id in self._open:
            self.group.command("cancel", request_id)

    def step(self) -> list[tuple[str, InferenceEvent]]:
        """Return the events of rank 0, after a short wait for them. Raises ProblemError: a rank is lost."""
        self._receive(_WAIT_SECONDS)
        events, self._events = self._events, []
        return events

    @property
    def idle_delay(self) -> float | None:
        """Delay after which `work_idly` looks whether the ranks live."""
        return SILENT_SECONDS / 3

    def work_idly(self) -> None:
        self._receive(0.0)

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        self._share.on_eviction_request = call

    def release_memory(self) -> None:
        """Evict all cached prefixes if another model has requested memory; later figures tell that."""
        if self._share.eviction_request:
            self._share.eviction_request = 0
            self.release_caches()

    def release_caches(self) -> None:
        self.group.command("release_caches")

    def close(self) -> None:
        try:
            self.group.close()
        finally:
            self._share.close()

    def _receive(self, seconds: float) -> None:
        for message in self.group.wait(seconds, working=bool(self._open)):
            match message:
                case "events", list(events), figures:
                    for name, event in events:
                        if name in self._open and isinstance(event, InferenceEvent):
                            self._events.append((name, event))
                            self._open[name] -= isinstance(event, Finished)
                            if isinstance(event, Failed) or not self._open[name]:
                                del self._open[name]
                    if isinstance(figures, EngineSnapshot):
                        self._record(figures)

    def _record(self, figures: EngineSnapshot) -> None:
        """Keep rank 0's figures, with the memory of all ranks here: caches divide as the layers do."""
        of_leader, group = figures.memory, self.group
        share = sum(status.layers for status in group.here) / group.children[0].status.layers
        running, cached = (round(each * share) for each in (of_leader.running, of_leader.cached))
        if not self._share.charge_running(running):  # they have it, so others' cached prefixes give way
            self._share.request_eviction(running, 0.0)
        self._share.charge_cached(cached)
        memory = attrs.evolve(of_leader, weights=self._share.weights, running=running, cached=cached)
        self._figures = attrs.evolve(figures, memory=memory, ranks=group.figures())


def open_ranked_engine(load: ModelLoad, model: str, ranks: int) -> RankedEngine:
    """Start the ranks of a model on its hosts, and load it. Raises ProblemError: a setting does not work with
    ranks, the model cannot be divided or does not fit, or a rank is lost; LoadAbandonedError.
    """
    try:
        hosts = read_hosts(load.settings.hosts)
        places = local_places(ranks)
        if hosts:
            chosen = place_ranks(ranks, hosts)
            places = places_on(chosen, load.folder, model, load.record, load.settings, load.account)
    except ValueError as error:
        raise ProblemError(load_failed(model, f"{error}.")) from error
    group, share = start_ranks(load, model, places), Share(load.account)
    try:
        load_ranks(group, load, share)
    except BaseException:
        group.kill()
        share.close()
        raise
    return RankedEngine(group, share)


def start_ranks(load: ModelLoad, model: str, places: Sequence[RankPlace]) -> RankGroup:
    """Start the processes of a model. Raises ProblemError: a setting does not work with ranks."""
    settings = load.settings
    if (reason := _refusal(load, model, len(places))) is not None:
        raise ProblemError(load_failed(model, reason))
    start = {
        "model": model,
        "backend": "ring",
        "folder": str(load.folder),
        # Other machines need none of the secrets.
        "settings": attrs.evolve(settings, api_key=None, mcp=(), remotes=()),
        "record": load.record,
        "split": None,
        # Other machines have no such files.
        "template": chat_template_of(model, settings),
        "system_prompt": system_prompt_of(model, settings),
    }
    return RankGroup(model, places, start, load.account)


def _refusal(load: ModelLoad, model: str, ranks: int) -> str | None:
    """Return why a model cannot have ranks, as the end of a sentence; None if it can."""
    settings, record = load.settings, load.record
    if record.model_type != "text" or vlm_text_module(record.architecture) is not None:
        return "the setting ranks works with text models alone, not with those that see, hear or embed"
    unsupported = {
        "kv_bits": settings.kv_bits is not None,
        "prefix_cache_dir": settings.prefix_cache_dir is not None,
        "speculation": settings.speculation not in (None, "off"),
        "draft_model": settings.draft_model is not None,
        "adapter": settings.of_model(model).adapter is not None,
    }
    if found := [name for name, is_set in unsupported.items() if is_set]:
        return f"the setting {found[0]} does not work with the setting ranks"
    return why_indivisible(load.folder, settings, ranks)


def load_ranks(group: RankGroup, load: ModelLoad, share: Share) -> None:
    """Wait until all ranks are ready; their weights are charged to `share` before they are read. Raises
    ProblemError: they do not fit, the model cannot be loaded, or a rank is lost; LoadAbandonedError.
    """
    charged = False
    while any(child.status.stage != "ready" for child in group.children):
        group.wait(_PROGRESS_SECONDS, working=True)
        if load.is_abandoned():
            raise LoadAbandonedError
        told = [child.status for child in group.children]
        if not charged and all(status.nbytes is not None for status in told):
            here = sum(status.nbytes or 0 for status in group.here)
            charge_weights(load.account, share, load.folder.name, here)
            charged = True
            group.put_all("load", _kv_bytes(group, share.capacity()))
        load.progress(min(status.loaded for status in told))


def _kv_bytes(group: RankGroup, capacity: int | None) -> int | None:
    """Return the most bytes of rank 0's KV caches, beside which each rank has those of its layers.
    `capacity`: bytes for the ranks on this machine; None for no limit.
    """
    per_layer = [
        child.place.stage.room / child.status.layers
        for child in group.children
        if child.place.stage and not child.place.is_local
    ]
    if capacity is not None and group.here:
        per_layer.append(capacity / sum(status.layers for status in group.here))
    return round(min(per_layer) * group.children[0].status.layers) if per_layer else None
