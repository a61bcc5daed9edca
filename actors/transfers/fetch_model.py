"""Fetch of a model from the hub into its cache (resumed, checked, shared), and a survey of sizes."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import attrs
import httpx2
import trio

from greenroom.actors.transfers.fetch_file import PAUSES, FileTransfer, Origin, TransferError
from greenroom.engine.catalog.hub.hub_cache import hub_cache_folder
from greenroom.engine.catalog.hub.repository import (
    LISTING_SECONDS,
    RemoteFile,
    Repository,
    describe_failure,
    download_failed,
    hub_address,
    hub_token,
    read_repository,
)
from greenroom.engine.catalog.hub.snapshot import (
    PartFile,
    RepositoryLock,
    SnapshotFolder,
    metadata_files,
    weight_files,
)
from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG
from greenroom.schemas.models.model_description import Download
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.download_protocol import DownloadProgress, DownloadStage, size_text

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_FAILURES = (TransferError, OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError)
"""Errors of the hub, the network and the disk, which are reported as values."""

_AT_ONCE = 4  # Number of files that are fetched at the same time

RESERVED_BYTES = 256 << 20  # Bytes of the disk that a fetch leaves free, as the store and uploads do


@attrs.frozen
class Wish:
    """A model that is to be fetched.

    Args:
        trust_remote_code: Whether to fetch the model's own Python code too.
        pauses: Seconds before another try, by the number of tries in a row that brought nothing.
        attached: True if the fetch ends with the last client that waits for the model.
        client: Name of the client whose request began it; None for an operator.
    """

    hub_id: str
    revision: str = "main"
    trust_remote_code: bool = False
    pauses: tuple[float, ...] = PAUSES
    attached: bool = attrs.field(default=False, eq=False)
    client: str | None = attrs.field(default=None, eq=False)


class DiskRoom:
    """The free disk space that the fetches of a server share: each counts what the others still need."""

    def __init__(self) -> None:
        self._left: dict[object, Callable[[], int]] = {}

    @contextmanager
    def claimed(self, cache: Path, free: int, left: Callable[[], int]) -> Iterator[None]:
        """Claim room in a cache folder, with `free` bytes, for the bytes that a fetch still needs. Raises
        OSError: there is not enough; the message gives the sizes.
        """
        needed, promised = left(), sum(other() for other in self._left.values())
        if needed and needed + promised + RESERVED_BYTES > free:
            sizes = f"it needs {size_text(needed)}, and {size_text(free)} are free"
            others = f", of which other downloads need {size_text(promised)}" if promised else ""
            kept = f"{RESERVED_BYTES >> 20} MB stay free"
            raise OSError(f"{sizes} where {cache} lies{others}, and {kept}")
        claim = object()
        self._left[claim] = left
        try:
            yield
        finally:
            del self._left[claim]


FetchFiles = Callable[[Wish, Callable[[DownloadProgress], None] | None], Path]
"""Function that fetches a model's files on the calling thread, and returns their folder; it raises
ProblemError."""


def _ignore(_: object) -> None:
    pass


def fetch_here(wish: Wish, report: Callable[[DownloadProgress], None] | None = None) -> Path:
    """Fetch a model's files with an event loop of the calling thread; see `fetch_model`."""
    return trio.run(fetch_model, wish, report or _ignore)


async def fetch_model(
    wish: Wish,
    report: Callable[[DownloadProgress], None] = _ignore,
    tell: Callable[[Download], None] = _ignore,
    cache: Path | None = None,
    room: DiskRoom | None = None,
) -> Path:
    """Fetch the files of a model that are missing, and return its snapshot's folder.

    It may be cancelled at any time: whole files and parts stay for the next try.

    Args:
        report: Callback for the progress, a few times each second.
        tell: Callback with number and size of the missing files, before weights are fetched.
        cache: Hub cache folder; None for the usual one.
        room: Disk space that other fetches share; None if there are none.

    Raises:
        ProblemError: 503 `load_failed`: the detail says why, and what to do; 404 if the hub has no such
            model; 409 while it is being deleted.
    """
    cache = hub_cache_folder() if cache is None else cache
    return await _Fetch(wish, ProgressMeter(report), tell, cache, room or DiskRoom()).run()


@attrs.frozen(eq=False)
class _Fetch:
    _wish: Wish
    _meter: ProgressMeter
    _tell: Callable[[Download], None]
    _cache: Path
    _room: DiskRoom
    _source: str = attrs.field(init=False, factory=hub_address)

    async def run(self) -> Path:
        wish = self._wish
        try:
            repository = await self._list()
            folder = SnapshotFolder(repository, self._cache)
            async with turn_to_fetch(wish.hub_id, self._cache, lambda: self._meter.enter("waiting")):
                return await self._fetch(repository, folder)
        except ProblemError:
            raise
        except _FAILURES as error:
            reason = describe_failure(error, self._source)
            raise ProblemError(download_failed(wish.hub_id, reason)) from error

    async def _list(self) -> Repository:
        reading = partial(read_repository, self._wish.hub_id, self._wish.revision)
        with trio.move_on_after(LISTING_SECONDS):
            return await trio.to_thread.run_sync(reading, abandon_on_cancel=True)
        raise TransferError(f"{self._source} did not answer within {LISTING_SECONDS:g} seconds")

    async def _fetch(self, repository: Repository, folder: SnapshotFolder) -> Path:
        trust = self._wish.trust_remote_code
        metadata = await trio.to_thread.run_sync(metadata_files, repository, trust)
        try:
            await trio.to_thread.run_sync(folder.drop_stale_parts)
            async with self._client(folder) as fetch:
                if any(file.path in ("config.json", ADAPTER_CONFIG) for file in metadata):
                    await fetch(repository, metadata)
                else:
                    metadata = ()
                await trio.to_thread.run_sync(folder.draw_outline, metadata)
                choosing = partial(weight_files, repository, folder.outline, trust)
                files = (*metadata, *await trio.to_thread.run_sync(choosing))
                announcing = partial(self._measure, repository, folder, files)
                if (download := await trio.to_thread.run_sync(announcing)).files:
                    self._tell(download)
                await fetch(repository, files)
            return await trio.to_thread.run_sync(folder.link, files)
        except ProblemError:
            await trio.to_thread.run_sync(folder.erase_unlinked)
            raise
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(folder.erase_outline)

    def _measure(
        self, repository: Repository, folder: SnapshotFolder, files: tuple[RemoteFile, ...]
    ) -> Download:
        missing = {file.digest for file in files if not folder.has(file)}
        size = folder.missing_bytes(files)
        return Download(repository.hub_id, len(missing), size, self._source, str(self._cache))

    @asynccontextmanager
    async def _client(self, folder: SnapshotFolder) -> AsyncIterator[_FetchFiles]:
        origin = Origin(self._source, hub_token(), self._wish.pauses)
        async with httpx2.AsyncClient(timeout=_TIMEOUT) as client:
            yield _FetchFiles(client, origin, folder, self._meter, self._cache, self._room)


@attrs.frozen(eq=False)
class _FetchFiles:
    _client: httpx2.AsyncClient
    _origin: Origin
    _folder: SnapshotFolder
    _meter: ProgressMeter
    _cache: Path
    _room: DiskRoom

    async def __call__(self, repository: Repository, files: tuple[RemoteFile, ...]) -> None:
        """Fetch the files that are missing. Raises TransferError: the hub does not give one of them. Raises
        OSError: the disk refuses, or has not enough room.
        """
        unique = {file.digest: file for file in files}.values()
        there, whole, free = await trio.to_thread.run_sync(self._look, files)
        size = sum(file.size for file in unique)
        self._meter.enter("downloading", len(unique), size, sum(there.values()))
        failures: list[Exception] = []
        turns = trio.CapacityLimiter(_AT_ONCE)

        async def fetch(file: RemoteFile, nursery: trio.Nursery) -> None:
            part = PartFile(file, self._folder.blob(file))

            def arrived() -> None:
                there[file.digest] = part.have
                self._meter.set(sum(there.values()), force=part.is_whole)

            try:
                async with turns:
                    await self._fetch_file(repository, part, arrived)
            except _FAILURES as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

        with self._room.claimed(self._cache, free, lambda: size - sum(there.values())):
            async with trio.open_nursery() as nursery:
                for file in unique:
                    if file.digest not in whole:
                        nursery.start_soon(fetch, file, nursery)
        if failures:
            raise failures[0]

    async def _fetch_file(self, repository: Repository, part: PartFile, arrived: Callable[[], None]) -> None:
        try:
            # A part of tens of gigabytes takes a minute to read, and is left at once when it is cancelled.
            await trio.to_thread.run_sync(part.open, trio.from_thread.check_cancelled)
            arrived()
            await FileTransfer(self._client, self._origin, part, repository.url(part.file), arrived).run()
        finally:
            part.close()

    def _look(self, files: tuple[RemoteFile, ...]) -> tuple[dict[str, int], set[str], int]:
        """Return the bytes of each file that are there, those that are whole, and the free bytes."""
        there = {file.digest: self._folder.part_bytes(file) for file in files}
        whole = {file.digest for file in files if self._folder.has(file)}
        return there, whole, shutil.disk_usage(self._cache).free


WINDOW = 5.0  # Seconds over which the rate is measured

_INTERVAL = 0.2  # Least seconds between two reports of one stage


class ProgressMeter:
    """The progress of a download, reported a few times each second."""

    def __init__(self, report: Callable[[DownloadProgress], None]) -> None:
        self._report = report
        self._progress = DownloadProgress("resolving")
        self._arrived: deque[tuple[float, int]] = deque()
        self._reported = float("-inf")
        report(self._progress)

    def enter(self, stage: DownloadStage, files: int = 0, nbytes: int = 0, received: int = 0) -> None:
        self._progress = DownloadProgress(stage, files, nbytes, received)
        self._arrived.clear()
        self.set(received, force=True)

    def set(self, received: int, *, force: bool = False) -> None:
        """Note how many bytes there are, and report it unless a report was just made."""
        now = trio.current_time()
        if self._arrived and received < self._arrived[-1][1]:
            self._arrived.clear()  # a file begins anew
        self._arrived.append((now, received))
        while now - self._arrived[0][0] > WINDOW:
            self._arrived.popleft()
        if force or now - self._reported >= _INTERVAL:
            first, had = self._arrived[0]
            rate = (received - had) / (now - first) if now > first else 0.0
            self._progress = attrs.evolve(self._progress, received=received, rate=rate)
            self._reported = now
            self._report(self._progress)


_POLL_SECONDS = 0.1


@asynccontextmanager
async def turn_to_fetch(hub_id: str, cache: Path, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock on a repository; a process that dies releases it.

    Args:
        on_wait: Callback, if another process or download holds it.

    Raises:
        ProblemError (409): the model is being deleted.
        OSError: The file of the lock cannot be made.
    """
    with RepositoryLock(hub_id, cache) as lock:
        waiting = False
        while not lock.try_to_fetch():
            if not waiting:
                waiting = True
                on_wait()
            await trio.sleep(_POLL_SECONDS)
        yield


SECONDS = 5.0  # Longest wait for the sizes: a machine without a network must not look stuck
_SAMPLE_SECONDS = 2.0
_SAMPLE_BYTES = 32 << 20


async def survey_hub(hub_ids: Sequence[str]) -> tuple[dict[str, int], float]:
    """Return the bytes of each of these models that the hub gives to everybody, and its bytes per second.

    The rate is measured on the first bytes of the first model's largest file; nothing is kept. Both are empty
    if the hub does not answer within seconds, or HF_HUB_OFFLINE forbids to ask it.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode() or not hub_ids:
        return {}, 0.0
    headers = {"authorization": f"Bearer {token}"} if (token := hub_token()) else {}
    files: dict[str, dict[str, int]] = {}
    rate = 0.0
    async with httpx2.AsyncClient(
        base_url=hub_address(), headers=headers, follow_redirects=True, timeout=SECONDS
    ) as client:

        async def list_files(hub_id: str) -> None:
            try:
                answer = (await client.get(f"/api/models/{hub_id}?blobs=true")).raise_for_status().json()
                if not answer.get("gated"):
                    files[hub_id] = {str(each["rfilename"]): int(each["size"]) for each in answer["siblings"]}
            except (httpx2.HTTPError, httpx2.InvalidURL, AttributeError, KeyError, TypeError, ValueError):
                pass  # it is not offered

        with trio.move_on_after(SECONDS):
            async with trio.open_nursery() as nursery:
                for hub_id in hub_ids:
                    nursery.start_soon(list_files, hub_id)
        sizes = {hub_id: sum(files[hub_id].values()) for hub_id in hub_ids if files.get(hub_id)}
        if sizes:
            first = next(iter(sizes))
            largest = max(files[first], key=files[first].__getitem__)
            rate = await _measure_rate(client, f"/{first}/resolve/main/{largest}")
    return sizes, rate


async def _measure_rate(client: httpx2.AsyncClient, path: str) -> float:
    received, began = 0, trio.current_time()
    with trio.move_on_after(_SAMPLE_SECONDS + SECONDS) as limit:
        try:
            async with client.stream("GET", path) as answer:
                answer.raise_for_status()
                began = trio.current_time()
                limit.deadline = began + _SAMPLE_SECONDS
                async for piece in answer.aiter_raw():
                    received += len(piece)
                    if received >= _SAMPLE_BYTES:
                        break
        except httpx2.HTTPError:
            pass
    return received / max(trio.current_time() - began, 1e-3)
