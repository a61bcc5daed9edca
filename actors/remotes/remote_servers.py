"""Everything that is known of the remotes: their breakers, figures of what was sent, and the lists of their
models, which are kept up to date in the background.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from itertools import chain
from typing import Any, Literal, TypeGuard, get_args

import attrs
import trio

from greenroom.actors.remotes.remote_call import CallFailure, count_of
from greenroom.schemas.events.statistics import RemoteStatus
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.capabilities import CapabilityRecord, Modality, ModelType
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import ModelName
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.settings import Settings, given_values

FAILURES = 3
"""Failures within `WINDOW` after which nothing more is sent."""
WINDOW = 30.0
"""Seconds in which failures count together."""
PAUSES = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds until one request may try again, by the number of tries in a row that failed."""

MAX_MODELS = 5_000
_MAX_NAME = 200
_BY_NAME: tuple[tuple[str, ModelType], ...] = (
    (r"rerank", "rerank"),
    (r"embed|minilm|\bbge-", "embeddings"),
    (r"\btts|speech|kokoro", "speech"),
    (r"whisper|transcribe", "transcription"),
)
"""Kinds that a model's name suggests, for servers that do not tell."""
_CONTEXTS = ("context_length", "max_model_len", "context_window", "max_input_tokens")
_INTERVAL = 30.0
"""Seconds between two lists of a remote; a Greenroom's tells what is loaded."""
_OWN_INTERVAL = 5.0
_LONGEST = 60.0

log = get_logger(actor="remotes")


class Breaker:
    """Decides whether a remote is asked. Times are seconds by any clock that only advances.

    While it is open nothing is sent. After a pause one request may try (half open): its success closes the
    breaker, its failure opens it for longer. A request that ends with neither gives the try to another.
    """

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self._until: float | None = None
        self._opened = 0
        self._probe: object = None
        self.reason = ""

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        if self._until is None:
            return "closed"
        return "open" if now < self._until else "half_open"

    def may_begin(self, now: float) -> bool:
        """Return whether a request could begin now, and take nothing."""
        return self._until is None or (now >= self._until and self._probe is None)

    def begin(self, request: object, now: float) -> bool:
        """Return whether a request may be sent; in the half open state that is one at a time."""
        may_begin = self.may_begin(now)
        if may_begin and self._until is not None:
            self._probe = request
        return may_begin

    def succeed(self, request: object) -> None:
        """Record that the remote has answered; late answers from before it opened do not count."""
        if self._until is None or request is self._probe:
            self._until, self._probe, self._opened, self.reason = None, None, 0, ""
            self._failures.clear()

    def fail(self, request: object, now: float, reason: str) -> None:
        """Record a failure that is the remote's own."""
        self.reason = reason
        if self._until is None:
            self._failures.append(now)
        is_too_much = len(self._failures) == FAILURES and now - self._failures[0] <= WINDOW
        if is_too_much if self._until is None else request is self._probe:
            self._until = now + PAUSES[min(self._opened, len(PAUSES) - 1)]
            self._opened, self._probe = self._opened + 1, None
            self._failures.clear()

    def leave(self, request: object) -> None:
        """Record the end of a request of which nothing was learnt, such as a cancelled one."""
        if request is self._probe:
            self._probe = None

    def seconds_left(self, now: float) -> float:
        """Return the seconds until a request may try; 0 if one may."""
        return 0.0 if self._until is None else max(0.0, self._until - now)


@attrs.frozen
class OfferedModel:
    """A model of a remote, as its last list tells.

    Args:
        name: Its name here, without that of the remote.
        loaded: True if it is known to be in memory.
        waiting: Number of requests that wait for it there.
    """

    name: str
    description: ModelDescription
    loaded: bool = False
    waiting: int = 0


@attrs.define(eq=False)
class RemoteServer:
    """A remote with its state.

    Args:
        models: Its models by their names here, from the last list; None before the first.
        error: Reason why the last list did not come; empty if it did.
        busy_until: Time until which it wants no requests, by `time.monotonic()`.
        requests: Number of requests that were sent; `running`, those of them that have not ended.
        described: Those models, and those that the settings name and no list has.
    """

    name: str
    remote: Remote
    breaker: Breaker = attrs.field(factory=Breaker)
    models: Mapping[str, OfferedModel] | None = None
    error: str = ""
    busy_until: float = 0.0
    requests: int = 0
    running: int = 0
    failures: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    described: tuple[ModelDescription, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._describe({})

    def _describe(self, found: Mapping[str, OfferedModel]) -> None:
        listed = {**{name: self.offered(name, {"id": name}) for name in self.remote.named}, **found}
        self.described = tuple(model.description for model in listed.values())

    def offered(self, name: str, told: JsonObject, waiting: int = 0) -> OfferedModel:
        """Return a model as its entry in a list, or else its name, tells it. `name`: its name here."""
        by_name = (kind for pattern, kind in _BY_NAME if re.search(pattern, told["id"].lower()))
        by_type = (known for known in get_args(ModelType) if known == told.get("type"))
        kind: ModelType = next(chain(by_type, by_name), "text")
        context = next((count for key in _CONTEXTS if (count := count_of(told.get(key)))), 0)
        found = told.get("capabilities")
        voices = found.get("voices") if isinstance(found, dict) else None
        named = tuple(filter(_is_name, voices))[:500] if isinstance(voices, list) else ()
        inputs: tuple[Modality, ...] = ("text", "image") if kind == "vision" else ("text",)
        place, ident = f"remote ({self.remote.api})", f"{self.name}/{name}"
        record = CapabilityRecord(kind, "default", place, context, inputs=inputs, voices=named)
        created, is_loaded = count_of(told.get("created")), told.get("state") == "ready"
        description = ModelDescription(ident, created, record=record, model=ident, owned_by=self.name)
        return OfferedModel(name, description, is_loaded, waiting)

    def record_traffic(self, sent: int, received: int) -> None:
        """Record bytes of bodies; only requests have some that are sent."""
        self.requests += sent > 0
        self.bytes_sent += sent
        self.bytes_received += received

    def fault(self, now: float) -> str:
        """Return the reason why nothing is sent to it now; empty if something may be."""
        if now < self.busy_until:
            return f"has too much to do for {self.busy_until - now:.0f} s"
        return "" if self.breaker.may_begin(now) else f"is away ({self.breaker.reason})"

    def refusal(self, request: object) -> Problem | None:
        """Begin a request, or return the problem why nothing is sent."""
        now = time.monotonic()
        if not (why := self.fault(now)):
            self.breaker.begin(request, now)
            return None
        is_busy = now < self.busy_until
        status, code = (429, "remote_busy") if is_busy else (503, "remote_away")
        left = self.busy_until - now if is_busy else self.breaker.seconds_left(now)
        return Problem(status, code, f"The remote '{self.name}' {why}.", retry_after=max(1, round(left)))

    def record_failure(self, request: object | None, failure: CallFailure) -> None:
        """Record the failure of a request; None for a list, which tells nothing of a closed breaker."""
        now = time.monotonic()
        self.busy_until = max(self.busy_until, now + failure.pause if failure.pause else 0.0)
        if request is not None and failure.counts:
            self.breaker.fail(request, now, failure.reason)
            if self.breaker.state(now) == "open":
                log.warning("remote is not asked for a while", remote=self.name, reason=failure.reason)
        elif request is not None and failure.counts is not None:
            self.breaker.succeed(request)  # it is there

    def record_list(self, listed: Any, used: Any = None) -> None:
        """Record the models of a list that the settings take.

        Args:
            listed: Answer to `GET /v1/models`, of OpenAI's, Anthropic's or a Greenroom's shape.
            used: Answer of a Greenroom to `GET /admin/models`; None without one.
        """
        found: dict[str, OfferedModel] = {}
        waiting = {each["id"]: count_of(each.get("waiting")) for each in _named(used, "models")}
        for entry in _named(listed, "data"):
            # What another Greenroom has from a remote itself is not asked of it.
            there, architecture = entry["id"], entry.get("architecture")
            is_far = isinstance(architecture, str) and architecture.startswith("remote (")
            if not is_far and (name := self.remote.name_here(there)) is not None:
                found[name] = self.offered(name, entry, waiting.get(there, 0))
        if found != self.models:
            self.models = found
            self._describe(found)
        self.error = ""

    def record_no_list(self, failure: CallFailure, probe: object | None) -> None:
        """Record the reason why no list came; the last one stays. `probe`: see `record_failure`."""
        self.record_failure(probe, failure)
        if failure.reason != self.error:
            log.warning("remote away", remote=self.name, reason=failure.detail or failure.reason)
        self.error = failure.reason

    def status(self) -> RemoteStatus:
        state = self.breaker.state(time.monotonic())
        problem = self.breaker.reason if state != "closed" else self.error
        models = {f"{self.name}/{name}": model.loaded for name, model in (self.models or {}).items()}
        loaded = tuple(name for name, is_loaded in models.items() if is_loaded)
        counts = self.running, self.requests, self.failures, self.bytes_sent, self.bytes_received
        place = self.remote.root, self.remote.api
        return RemoteStatus(self.name, *place, state, problem, tuple(models), *counts, loaded)


class RemoteServers:
    """The remotes of the settings. Reading is safe on any thread."""

    def __init__(self, settings: Settings) -> None:
        self.servers = {name: RemoteServer(name, remote) for name, remote in settings.remote_servers.items()}

    def place(self, model: str) -> tuple[RemoteServer, str] | None:
        """Return the remote of a model and the model's name there; None if it is none of a remote."""
        owner, _, name = model.partition("/")
        if (server := self.servers.get(owner)) is None or not name:
            return None
        # Before the first list, only the remote can tell.
        known = server.models is None or name in server.models or name in server.remote.named
        there = server.remote.name_there(name) if known else None
        return None if there is None else (server, there)

    def find(self, name: str, settings: Settings) -> ModelName | None:
        """Return the meaning of a name, an alias or a profile of a remote model; None if it means none."""
        if not self.servers:
            return None
        for meant in (name, *(model for alias, model in settings.aliases if alias == name)):
            if self.place(meant) is not None:
                return ModelName(meant)
        profile = settings.all_profiles.get(name)
        if profile is None or self.place(profile.model) is None:
            return None
        given = {
            key: value for key, value in given_values(profile).items() if key not in ("model", "adapter")
        }
        return ModelName(profile.model, name, given)

    def descriptions(self) -> tuple[ModelDescription, ...]:
        """Return descriptions of all listed models; the same objects while no list has changed."""
        return tuple(model for server in self.servers.values() for model in server.described)

    def describe(self, model: str) -> ModelDescription:
        """Return the description of a model of a remote."""
        owner, _, name = model.partition("/")
        listed = (each for each in self.servers[owner].described if each.id == model)
        return next(listed, None) or self.servers[owner].offered(name, {"id": name}).description

    def statuses(self) -> tuple[RemoteStatus, ...]:
        return tuple(server.status() for server in self.servers.values())


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _MAX_NAME


def _named(listed: Any, name: str) -> list[JsonObject]:
    """Return the objects of a list that have an id."""
    found = listed.get(name) if isinstance(listed, dict) else None
    entries = found[:MAX_MODELS] if isinstance(found, list) else ()
    return [each for each in entries if isinstance(each, dict) and _is_name(each.get("id"))]


async def watch_remotes(remotes: RemoteServers) -> None:
    """Ask the remotes for their models again and again, until cancelled."""
    async with trio.open_nursery() as nursery:
        for server in remotes.servers.values():
            nursery.start_soon(_watch, server)


async def _watch(server: RemoteServer) -> None:
    from greenroom.actors.remotes.remote_client import RemoteClient

    usual = pause = _OWN_INTERVAL if server.remote.api == "greenroom" else _INTERVAL
    async with aclosing(RemoteClient(server.name, server.remote, server.record_traffic)) as client:
        while True:
            # While the breaker is open nothing is sent; then this is the one request that may try.
            probe = object()
            if server.refusal(probe) is None:
                is_probe = server.breaker.state(time.monotonic()) != "closed"
                try:
                    listed, used, _ = await client.list_models()
                    if server.error or server.models is None:
                        log.info("remote found", remote=server.name)
                    server.record_list(listed, used)
                    pause = usual
                    if is_probe:
                        server.breaker.succeed(probe)
                except CallFailure as failure:
                    server.record_no_list(failure, probe if is_probe else None)
                    pause = usual if failure.counts is False else 2 * pause
                server.breaker.leave(probe)
            left = server.breaker.seconds_left(time.monotonic())
            await trio.sleep(min(pause, _LONGEST, max(left, 1.0) + usual))
