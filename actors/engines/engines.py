"""Access of the actors to the engine: finding models, opening them without weights, and loading them.

No MLX module is imported before a worker calls these functions.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.actors.engines.engine_protocol import Engine, ModelFolder, PromptAdapter
from greenroom.actors.engines.listed_models import Limits, ModelList, ModelNames, draft_folder, missing_draft
from greenroom.actors.engines.residences import HeldPrefixes, ProbedModels, Residences
from greenroom.actors.records.audit import AuditBook, TokenMeter
from greenroom.actors.records.inspector import Inspector
from greenroom.actors.transfers.fetch_model import FetchFiles, Wish, fetch_here
from greenroom.engine.loading.libraries import prefer_openblas
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.model_description import MemoryNeed, ModelDescription
from greenroom.schemas.problems import NoRoomError, Problem, ProblemError, load_failed
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.schemas.protocols.model_protocol import Sized
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.probe.probe import Probe
    from greenroom.engine.resources.memory_account import MemoryAccount


log = get_logger()


@attrs.frozen
class ModelFiles:
    """A model with local files."""

    id: str
    folder: Path


@attrs.frozen(eq=False)
class OpenedModel:
    """A model with local files that can prepare prompts; its weights are not loaded."""

    id: str
    folder: Path
    record: CapabilityRecord
    adapter: PromptAdapter
    need: MemoryNeed

    @property
    def sized(self) -> Sized:
        return Sized(self.need.granted, self.need.limit, self.need.estimated)


class Engines:
    """Access to the engine for the actors of a system. All but `available_memory` block: call them on a
    thread.

    Args:
        probed: Findings of probes; by default there are none.
        names: Names of the models; replaced only in tests of failures.

    Attributes:
        residences: Measured memory of the loaded models.
        downloads: Function that fetches a model's files; a system shares downloads among all who want them.
        asked_by: Clients whose requests have just named models that nobody else has, by model.
        abandon: Function that ends the fetch of a model that only requests have named, on the Trio thread.
        held: Prefixes that unloaded models have left.
        inspector: Inspector of the requests to models; None for none.
        audit: Audit of the requests to models; None for none.
        meter: Meter of the tokens of clients.
    """

    def __init__(
        self, settings: Settings, probed: ProbedModels | None = None, names: ModelNames | None = None
    ) -> None:
        prefer_openblas()  # before any thread imports MLX
        self.names = names or ModelNames(settings)
        self.probed = probed or ProbedModels()
        self.residences = Residences()
        self._list = ModelList(self.names, self.probed, self.residences, self._limits)
        self.held = HeldPrefixes()
        self.inspector = Inspector(settings.inspect) if settings.inspect else None
        self.audit: AuditBook | None = None
        self.meter = TokenMeter()
        self._broken = BrokenModels()
        self.downloads: FetchFiles = fetch_here
        self.asked_by: dict[str, str] = {}
        self.abandon: Callable[[str], None] = lambda model: None
        self._account: MemoryAccount | None = None
        self._lock = threading.Lock()

    def reload(self, settings: Settings) -> None:
        self.names.reload(settings)
        self._list.forget()

    def fetch(self, name: str, report: Callable[[DownloadProgress], None] | None = None) -> ModelFiles:
        """Fetch the model's files if necessary, and those of its draft model, however long that takes.

        Args:
            report: Callback for the progress of a download, on any thread.

        Raises:
            ProblemError: The model does not exist, or cannot be downloaded.
        """
        self.held.drop_deleted()
        entry = self.names.find_present(name)
        if isinstance(entry, Problem):
            raise ProblemError(entry)
        # Code that only a request brings is never run.
        trust = self.names.settings.trust_remote_code and not entry.unlisted
        client = self.asked_by.pop(entry.id, "") if entry.unlisted else None
        wish = Wish(entry.hub_id or entry.id, "main", trust, attached=entry.unlisted, client=client)
        folder = entry.folder or self.downloads(wish, report)
        if (draft := missing_draft(self.names.settings.applied_to(entry.id))) is not None:
            try:
                self.downloads(Wish(draft, trust_remote_code=self.names.settings.trust_remote_code), report)
            except ProblemError as error:  # no request has named the draft model, so it is no 404
                failed = load_failed(draft, "")
                raise ProblemError(attrs.evolve(failed, detail=error.problem.detail)) from error
        return ModelFiles(entry.id, folder)

    def describe(
        self, name: str | None, further: tuple[ModelDescription, ...] = ()
    ) -> tuple[ModelDescription, ...] | Problem:
        """Return descriptions, as `ModelList` does; what deleted models have left is dropped."""
        self.held.drop_deleted()
        return self._list.describe(name, further)

    def open_model(self, files: ModelFiles) -> OpenedModel:
        """Create the adapter that prepares a model's requests.

        Raises:
            ProblemError: The model cannot be used.
        """
        from greenroom.engine.catalog.folders import DEMO_FOLDER
        from greenroom.engine.catalog.hub.hub_cache import is_marked
        from greenroom.engine.catalog.operator_texts import system_prompt_of

        settings = self.names.settings.applied_to(files.id)
        # A broken system prompt is no fault of the model's files.
        system_prompt = system_prompt_of(files.id, settings)
        try:
            with self._broken.watched(files.id, files.folder, *_parts_elsewhere(files.id, settings)):
                record = self._list.record_of(files.id, self._detect(files), files.folder)
                unknown = record.probed is None and files.folder != DEMO_FOLDER
                if unknown and not is_marked(files.id) and self.probed.is_first_use(files.id):
                    # A name may be the server's own; a folder is known without it, too.
                    named = files.folder if files.folder.name == files.id else files.id
                    hint = f"greenroom probe {shlex.quote(str(named))}"
                    log.warning("model not probed", model=files.id, hint=hint)
                return self._open(files, record, system_prompt)
        except ProblemError:
            self.names.note_failure(files.id)
            raise

    def _detect(self, files: ModelFiles) -> CapabilityRecord:
        from greenroom.engine.catalog.kind_detection import detect
        from greenroom.engine.catalog.operator_texts import check_vision
        from greenroom.engine.resources.device_memory import main_memory

        settings, vision = self.names.settings.applied_to(files.id), self._list.allows_vision(files.id)
        detected = detect(files.folder, settings.trust_remote_code, files.id, allow_vision=vision)
        check_vision(detected, files.folder, files.id, settings, main_memory())
        return detected

    def _open(self, files: ModelFiles, known: CapabilityRecord, system_prompt: str = "") -> OpenedModel:
        from greenroom.engine.catalog.description import notices_of
        from greenroom.engine.catalog.operator_texts import with_operators_parsers
        from greenroom.engine.resources.residence import need_within

        settings = self.names.settings.applied_to(files.id)
        record = with_operators_parsers(known, settings, files.id)
        for notice in notices_of(files.folder, record):
            log.warning("model notice", model=files.id, notice=notice)

        from greenroom.actors.engines.kind_engines import open_adapter

        model = ModelFolder(files.id, files.folder, record)
        adapter = open_adapter(model, settings, system_prompt)
        account = self._limited_account()
        size = self._list.size(files.id, files.folder, record)
        need = need_within(account, files.id, record.model_type, size.total, size.least)
        return OpenedModel(files.id, files.folder, record, adapter, need)

    def open_probe(self, files: ModelFiles, scratch: Path, max_tokens: int | None = None) -> Probe:
        """Return the probe of a model, whose files are read anew.

        Its judgement compares the model's answers with what the files alone suggest, not with earlier probes.

        Args:
            max_tokens: Longest answer in tokens; None for the probe's own limit.

        Raises:
            ProblemError: The model cannot be used.
        """
        from greenroom.actors.engines.kind_engines import open_probe
        from greenroom.engine.probe.probe import known_capabilities

        opened = self._open(files, self._detect(files))
        settings = self.names.settings.applied_to(files.id)
        known = known_capabilities(files.id, files.folder, opened.record, settings, opened.need.limit)
        return open_probe(known, opened.adapter, scratch, max_tokens)

    def load_engine(
        self, opened: OpenedModel, progress: Callable[[float], None], is_abandoned: Callable[[], bool]
    ) -> Engine[Any]:
        """Load the weights on the calling thread, which the engine then belongs to. Raises ProblemError: the
        weights cannot be loaded.
        """
        from greenroom.actors.engines.kind_engines import open_engine

        model = ModelFolder(opened.id, opened.folder, opened.record)
        account, settings = self._open_account(), self.names.settings.applied_to(opened.id)
        residence = self.residences.begin(opened.id, opened.folder, settings, account)
        self.held.begin(opened.id, opened.folder, account)
        # Parts of models of sound, such as codecs and processors, are in folders of their own.
        own = opened.record.model_type not in ("speech", "transcription")
        elsewhere = _parts_elsewhere(opened.id, settings)
        try:
            with self._broken.watched(opened.id, opened.folder, *elsewhere) if own else nullcontext():
                return open_engine(
                    model, settings, progress, is_abandoned, account, opened.adapter, residence
                )
        except NoRoomError:  # a reason to wait
            raise
        except ProblemError:
            self.names.note_failure(opened.id)
            raise

    @staticmethod
    def available_memory() -> int | None:
        """Return the bytes that other programs leave now, without blocking; None if unknown.

        The machine's memory says nothing of a GPU that has its own.
        """
        from greenroom.engine.loading.devices import has_memory_of_its_own
        from greenroom.engine.resources.device_memory import available_memory

        return None if has_memory_of_its_own() else available_memory()

    def _limits(self) -> Limits | None:
        account = self._account
        return None if account is None or account.limit is None else (account.limit, account.most)

    def _limited_account(self) -> MemoryAccount:
        from greenroom.engine.loading.devices import use_device
        from greenroom.engine.resources.residence import set_limits

        account = self._open_account()
        if account.limit is None:
            try:
                use_device(self.names.settings)
            except ProblemError:  # as the load will tell
                return account
            set_limits(account)
        return account

    def _open_account(self) -> MemoryAccount:
        from greenroom.engine.resources.memory_account import MemoryAccount

        with self._lock:
            if self._account is None:
                self._account = MemoryAccount(
                    self.names.settings.memory_bytes, self.names.settings.kv_cache_bytes
                )
            return self._account


def _parts_elsewhere(model: str, settings: Settings) -> tuple[Path, ...]:
    draft, template = draft_folder(settings), settings.of_model(model).chat_template
    return (*([draft] if draft else ()), *([Path(template).expanduser()] if template else ()))


class BrokenModels:
    """The failures of models for which their files are to blame; all methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Problem]] = {}

    @contextmanager
    def watched(self, model: str, folder: Path, *others: Path) -> Iterator[None]:
        """Record a failure within that repeats until files change, and raise a recorded one at once.

        Args:
            others: Files and folders elsewhere that may be to blame as well.

        Raises:
            ProblemError: The error raised within, or the one recorded for the same files.
        """
        before = "".join(map(_stamp, (folder, *others)))
        with self._lock:
            files, problem = self._known.get(model, ("", None))
        if problem is not None and files == before:
            raise ProblemError(problem)
        try:
            yield
        except ProblemError as error:
            if error.problem.lasting:
                detail = f"{error.problem.detail} It is not tried again until its files change."
                with self._lock:
                    self._known[model] = before, attrs.evolve(error.problem, detail=detail)
            raise


def _stamp(path: Path) -> str:
    """Return a text that changes with a file, or with the files of a folder."""
    from greenroom.engine.catalog.model_files import fingerprint

    try:
        status = path.stat()
    except OSError:  # gone, which is a change as well
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {fingerprint(path)}"
