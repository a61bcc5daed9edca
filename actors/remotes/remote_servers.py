"""Everything that is known of the remotes: their state, figures of what was sent, and the lists of their
models, which are kept up to date in the background.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeGuard, get_args

import attrs
import trio

from greenroom.actors.remotes.breaker import Breaker, BreakerState
from greenroom.actors.remotes.remote_call import count_of
from greenroom.actors.remotes.routing import Candidate
from greenroom.schemas.events.statistics import RemoteStatus
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.capabilities import CapabilityRecord, Modality, ModelType
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import ModelName
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.settings import Settings, given_values

MAX_MODELS = 5_000
_MAX_NAME = 200
_BY_NAME: tuple[tuple[str, ModelType], ...] = (
    (r"rerank", "rerank"),
    (r"embed|minilm|\bbge-", "embeddings"),
    (r"\btts|speech|kokoro", "speech"),
    (r"whisper|transcribe", "transcription"),
)
_CONTEXTS = ("context_length", "max_model_len", "context_window", "max_input_tokens")

INTERVALS = {"greenroom": 5.0}
"""Seconds between two lists of a remote, by its api; a Greenroom's tells what is loaded."""
_INTERVAL = 30.0
_LONGEST = 60.0
SECONDS = 10.0
"""Longest time until a list is there."""
NO_KEY = "its key cannot be read"
"""Reason for clients where a key is not there: only the log names its file."""

log = get_logger(actor="remotes")


@attrs.frozen
class OfferedModel:
    """A model of a remote, as its last list tells.

    Args:
        name: Its name here, without that of the remote.
        there: Its name in the remote.
        context: Most tokens of prompt and answer; 0 if unknown.
        loaded: True if it is known to be in memory.
        waiting: Number of requests that wait for it there.
    """

    name: str
    there: str
    kind: ModelType = "text"
    context: int = 0
    inputs: tuple[Modality, ...] = ("text",)
    voices: tuple[str, ...] = ()
    created: int = 0
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
        self.described = _descriptions(self.name, self.remote, {})

    def record_traffic(self, sent: int, received: int) -> None:
        self.bytes_sent += sent
        self.bytes_received += received

    def leave_alone(self, seconds: float) -> None:
        """Send it nothing for a time that it has asked for."""
        self.busy_until = max(self.busy_until, time.monotonic() + seconds if seconds else 0.0)

    def fault(self, now: float) -> str:
        """Return the reason why nothing is sent to it now; empty if something may be."""
        if now < self.busy_until:
            return f"has too much to do for {self.busy_until - now:.0f} s"
        return "" if self.breaker.may_begin(now) else f"is away ({self.breaker.reason})"

    def refusal(self, request: object, now: float) -> Problem | None:
        """Begin a request, or return the problem why nothing is sent."""
        if not (why := self.fault(now)):
            self.breaker.begin(request, now)
            return None
        is_busy = now < self.busy_until
        status, code = (429, "remote_busy") if is_busy else (503, "remote_away")
        left = self.busy_until - now if is_busy else self.breaker.seconds_left(now)
        return Problem(status, code, f"The remote '{self.name}' {why}.", retry_after=max(1, round(left)))

    def record_list(self, listed: Iterator[OfferedModel], error: str = "", detail: str = "") -> None:
        """Record the models of a list, or the reason why none came; the last list then stays. `detail`: what
        only the log may tell of the reason.
        """
        if error and error != self.error:
            log.warning("remote away", remote=self.name, reason=detail or error)
        elif not error:
            if self.error or self.models is None:
                log.info("remote found", remote=self.name)
            found = {model.name: model for model in listed}
            if found != self.models:
                self.models, self.described = found, _descriptions(self.name, self.remote, found)
        self.error = error

    def status(self, now: float) -> RemoteStatus:
        state: BreakerState = self.breaker.state(now)
        problem = self.breaker.reason if state != "closed" else self.error
        models = {f"{self.name}/{name}": model.loaded for name, model in (self.models or {}).items()}
        loaded = tuple(name for name, is_loaded in models.items() if is_loaded)
        counts = self.running, self.requests, self.failures, self.bytes_sent, self.bytes_received
        place = self.remote.root, self.remote.api
        return RemoteStatus(self.name, *place, state, problem, tuple(models), *counts, loaded)


class RemoteServers:
    """The remotes of the settings. Reading is safe on any thread.

    Args:
        clock: Clock in seconds, with any origin.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.servers = {name: RemoteServer(name, remote) for name, remote in settings.remote_servers.items()}
        self._clock = clock

    def place(self, model: str) -> tuple[RemoteServer, str] | None:
        """Return the remote of a model and the model's name there; None if it is none of a remote."""
        owner, _, name = model.partition("/")
        server = self.servers.get(owner)
        there = None if server is None or not name else server.remote.name_there(name)
        if server is None or there is None:
            return None
        # Before the first list, only the remote can tell.
        known = server.models is None or name in server.models or name in server.remote.named
        return (server, there) if known else None

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
        given = given_values(profile).items()
        defaults = {key: value for key, value in given if key not in ("model", "adapter")}
        return ModelName(profile.model, name, defaults)

    def descriptions(self) -> tuple[ModelDescription, ...]:
        """Return descriptions of all listed models; the same objects while no list has changed."""
        return tuple(model for server in self.servers.values() for model in server.described)

    def describe(self, model: str) -> ModelDescription:
        """Return the description of a model of a remote."""
        server, _, name = model.partition("/")
        listed = (each for each in self.servers[server].described if each.id == model)
        return next(listed, None) or _description(server, self.servers[server].remote, _guessed(name))

    def candidate(self, model: str, used: int) -> Candidate:
        """Return the facts about a model, of which so many slots are used or waited for here."""
        server, name = self.servers[model.partition("/")[0]], model.partition("/")[2]
        known, now = (server.models or {}).get(name), self._clock()
        full = max(server.running, used) >= server.remote.slots or (known is not None and known.waiting > 0)
        return Candidate(
            model,
            server.name,
            server.remote.cost,
            loaded=known is not None and known.loaded,
            wait=None if full else 0.0,
            full=full,
            fault=server.fault(now),
        )

    def statuses(self) -> tuple[RemoteStatus, ...]:
        return tuple(server.status(self._clock()) for server in self.servers.values())


def _descriptions(
    server: str, remote: Remote, listed: Mapping[str, OfferedModel]
) -> tuple[ModelDescription, ...]:
    """Return descriptions of listed models, and of those that the settings name and no list has."""
    named = {name: _guessed(name) for name in remote.named}
    return tuple(_description(server, remote, model) for model in {**named, **listed}.values())


def _guessed(name: str) -> OfferedModel:
    return OfferedModel(name, name, kind_of(name))


def _description(server: str, remote: Remote, model: OfferedModel) -> ModelDescription:
    traits: dict[str, Any] = {"inputs": model.inputs, "voices": model.voices}
    record = CapabilityRecord(model.kind, "default", f"remote ({remote.api})", model.context, **traits)
    ident = f"{server}/{model.name}"
    return ModelDescription(ident, model.created, record=record, model=ident, owned_by=server)


def kind_of(name: str) -> ModelType:
    """Return the kind that a model's name suggests, for servers that do not tell."""
    return next((kind for pattern, kind in _BY_NAME if re.search(pattern, name.lower())), "text")


def read_list(remote: Remote, listed: Any, used: Any = None) -> Iterator[OfferedModel]:
    """Yield the models of a remote's list that the settings take.

    Args:
        listed: Answer to `GET /v1/models`, of OpenAI's, Anthropic's or a Greenroom's shape.
        used: Answer of a Greenroom to `GET /admin/models`; None without one.
    """
    waiting = {each["id"]: count_of(each.get("waiting")) for each in _named(used, "models")}
    for entry in _named(listed, "data"):
        # What another Greenroom has from a remote itself is not asked of it.
        kind = entry.get("architecture")
        is_far = isinstance(kind, str) and kind.startswith("remote (")
        if not is_far and (name := remote.name_here(entry["id"])) is not None:
            yield _offered(name, entry, waiting.get(entry["id"], 0))


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _MAX_NAME


def _named(listed: Any, name: str) -> list[JsonObject]:
    """Return the objects of a list that have an id."""
    found = listed.get(name) if isinstance(listed, dict) else None
    entries = found[:MAX_MODELS] if isinstance(found, list) else ()
    return [each for each in entries if isinstance(each, dict) and _is_name(each.get("id"))]


def _offered(name: str, entry: JsonObject, waiting: int) -> OfferedModel:
    there, told = entry["id"], entry.get("capabilities")
    kind = next((known for known in get_args(ModelType) if known == entry.get("type")), kind_of(there))
    context = next((count for key in _CONTEXTS if (count := count_of(entry.get(key)))), 0)
    voices = told.get("voices") if isinstance(told, dict) else None
    names = tuple(filter(_is_name, voices))[:500] if isinstance(voices, list) else ()
    inputs: tuple[Modality, ...] = ("text", "image") if kind == "vision" else ("text",)
    created, loaded = count_of(entry.get("created")), entry.get("state") == "ready"
    return OfferedModel(name, there, kind, context, inputs, names, created, loaded, waiting)


async def watch_remotes(remotes: RemoteServers) -> None:
    """Ask the remotes for their models again and again, until cancelled."""
    async with trio.open_nursery() as nursery:
        for server in remotes.servers.values():
            nursery.start_soon(_watch, server)


def list_url(remote: Remote) -> str:
    return f"{remote.base}/models{'?limit=1000' if remote.api == 'anthropic' else ''}"


async def _watch(server: RemoteServer) -> None:
    from greenroom.actors.remotes.remote_client import RemoteClient

    client = RemoteClient(server.name, server.remote, server.record_traffic)
    usual = pause = INTERVALS.get(server.remote.api, _INTERVAL)
    try:
        while True:
            # While the breaker is open nothing is sent; then this is the one request that may try.
            probe, now = object(), time.monotonic()
            if now >= server.busy_until and server.breaker.begin(probe, now):
                was_closed = server.breaker.state(now) == "closed"
                is_there = await _refresh(server, client)
                if not was_closed and is_there:
                    server.breaker.succeed(probe)
                elif not was_closed:
                    server.breaker.fail(probe, time.monotonic(), server.error)
                pause = usual if is_there else min(2 * pause, _LONGEST)
            await trio.sleep(min(pause, max(server.breaker.seconds_left(time.monotonic()), 1.0) + usual))
    finally:
        await client.aclose()


async def _refresh(server: RemoteServer, client: Any) -> bool:
    """Bring the list up to date; return whether the remote has answered."""
    from greenroom.actors.remotes.remote_client import CallFailure

    remote, used = server.remote, None
    try:
        key = await trio.to_thread.run_sync(remote.key)
        listed, _ = await client.get(list_url(remote), key, SECONDS)
        if remote.api == "greenroom":
            with suppress(CallFailure):  # a guest's key does not open this
                used, _ = await client.get(f"{remote.root}/admin/models", key, SECONDS)
        server.record_list(read_list(remote, listed, used))
    except CallFailure as failure:
        server.record_list(iter(()), failure.reason)
        server.leave_alone(failure.pause)
        return not failure.counts
    except (OSError, ValueError) as error:
        server.record_list(iter(()), NO_KEY, str(error))
        return False
    return True
