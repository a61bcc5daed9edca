"""Engine of a loaded text model, which runs on the model's single thread."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from greenroom.engine.grammar.masks import grammar_threads
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.loading.batching import BackgroundCheck
from greenroom.engine.loading.invariance_check import ROWS, TOKENS
from greenroom.engine.loading.load_model import load_model, load_text_lazily
from greenroom.engine.loading.openblas import least_chunk
from greenroom.engine.lora.loaded_adapters import LoadedAdapters
from greenroom.engine.resources.device_errors import synchronize_streams
from greenroom.engine.resources.memory_account import Share, share_statistics
from greenroom.engine.resources.residence import ModelLoad
from greenroom.engine.text.explanation import PromptHistory
from greenroom.engine.text.kv_memory import KvMemory
from greenroom.engine.text.parallel_samples import parallel_samples_of
from greenroom.engine.text.prefix_cache.disk_tier import open_disk_tier
from greenroom.engine.text.prefix_cache.host_tier import open_host_tier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache, discards_if_raised
from greenroom.engine.text.prompt_features import FeatureSource
from greenroom.engine.text.request_outputs import Events, RequestOutputs
from greenroom.engine.text.scheduler.admission import Admission, conversation_key
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.running_batches import BatchPolicy, RunningBatches
from greenroom.engine.text.scheduler.step_costs import StepCosts, time_copy
from greenroom.engine.text.sequence import new_sequence
from greenroom.engine.text.sequence_outputs import OutputProcessor
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.statistics import EngineSnapshot, TextEngineStatistics
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.adapters.adapter import Adapter


_POLL_SECONDS = 0.01  # Seconds between checks for new requests while all sequences wait for their grammars

_CLEAR_CACHE_STEPS = 512  # Steps between releases of the buffers that MLX keeps for reuse, as in mlx-lm


class TextEngine:
    """Continuous batching: `step` decodes a token of every running sequence and computes a prefill chunk.

    Args:
        model: One of mlx-lm's models, evaluated on this thread.
        adapter: The model's adapter, created on this thread.
        prefix_cache: Prefix cache; None disables it.
        close_timeout: Timeout in seconds for `close` to write cached prefixes to disk.
        speculation: Speculative decoding for a lone request; None disables it.
        share: Share of the memory account; None is unlimited.
        max_rows: Maximum number of sequences computed at once; other choices start as sequences end.
        background_check: Rest of the batch-invariance check that the load had no time for.
        features: Source of prompt features such as images; None if the model has none.
        costs: Cost model; None creates one, initialized by timing a copy.
        clock: Clock in seconds, with any origin, for timing work and batching windows.
        history: Earlier prompts, from which requests are explained; None to explain none.
        adapter_bytes: Most bytes of the LoRA adapters beside the model.

    Attributes:
        admission: Admission control of the sequences.
    """

    def __init__(
        self,
        model: Any,
        adapter: OutputProcessor,
        prefill_policy: PrefillPolicy | None = None,
        batch_policy: BatchPolicy | None = None,
        prefix_cache: PrefixCache | None = None,
        close_timeout: float = 10.0,
        speculation: Speculation | None = None,
        share: Share | None = None,
        max_rows: int = sys.maxsize,
        background_check: BackgroundCheck | None = None,
        features: FeatureSource | None = None,
        costs: StepCosts | None = None,
        clock: Callable[[], float] = time.perf_counter,
        history: PromptHistory | None = None,
        adapter_bytes: int = 0,
    ) -> None:
        self._history, self._close_timeout = history, close_timeout
        self._adapter = adapter
        if costs is None:
            costs = StepCosts()
            costs.observe_copy(*time_copy())
        self.prefix_cache = prefix_cache
        self._memory = KvMemory(share, CacheSizeModel.of(model), prefix_cache, features)
        self.adapters = LoadedAdapters(model, adapter_bytes, self._memory.charge_weights)
        self._prefill = PrefillQueue(model, prefill_policy, costs, prefix_cache, self._memory, clock)
        self._batches = RunningBatches(model, costs, batch_policy, self._memory, speculation, clock)
        self.admission = Admission(self._memory, self._prefill, self._batches, max_rows)
        self._outputs = RequestOutputs(self.admission, self._prefill, self._batches)
        self._features = features
        self._idle_work = IdleWork(background_check, self._memory)
        self._steps = 0

    @property
    def has_work(self) -> bool:
        """True if `step` would do anything."""
        stored = self.prefix_cache.stored if self.prefix_cache is not None else None
        writing = stored is not None and stored.pending
        return bool(
            self._outputs.events or len(self._batches) or len(self._prefill) or len(self.admission) or writing
        )

    @property
    def idle_delay(self) -> float | None:
        """Seconds without requests after which `work_idly` is due; None if there is no idle work."""
        return self._idle_work.delay

    @discards_if_raised
    def work_idly(self) -> None:
        """Do a short piece of idle work, if there are no requests."""
        if not self.has_work:
            self._idle_work.advance()

    def statistics(self) -> TextEngineStatistics:
        return TextEngineStatistics(
            requests=len(self._outputs.sequences),
            waiting=len(self.admission),
            prefilling=self._prefill.prefilling,
            prefilled=self._prefill.prefilled,
            decoding=sum(batch.active for batch in self._batches),
            batches=tuple(self._batches.shapes),
            steps=self._steps,
            memory=share_statistics(self._memory.share),
            admission=self.admission.statistics(),
            prefix_cache=None if (cache := self.prefix_cache) is None else cache.statistics(),
            speculation=self._batches.speculation.statistics(),
            token_intervals=self._outputs.intervals.snapshot(),
            phases=self._batches.timer.spent,
            adapters=self.adapters.names(),
        )

    def snapshot(self) -> EngineSnapshot:
        self.adapters.sweep()  # the last rows of a replaced one may have ended
        return self.statistics().snapshot(self._outputs.usage(), self._outputs.rows())

    @discards_if_raised
    def drop_adapter(self, folder: str) -> None:
        """Release the adapters of a folder, each once no row applies it any longer."""
        self.adapters.unload(folder)

    @discards_if_raised
    def submit(self, request: InferenceRequest, prepared: PreparedPrompt) -> None:
        """Add a request; `step` returns its events, ending with a Finished per choice or a Failed."""
        if not prepared.tokens:
            self._outputs.reject(request.id, invalid("The prompt is empty.", "prompt").problem)
            return
        cache = self._prefill.prefix_cache
        try:
            features = self._features.open(prepared) if self._features is not None else None
            callbacks = cache.insert_answer, cache.insert_part_of_answer
            sequence = new_sequence(request, prepared, self._adapter, *callbacks, features, self.adapters)
            if self._history is not None:
                self._history.explain(request, prepared, sequence)
            self.admission.add(sequence, request.client, conversation_key(request))
        except ProblemError as error:
            self._outputs.reject(request.id, error.problem)
            return
        self._outputs.add(sequence, prepared.echo)

    @discards_if_raised
    def cancel(self, request_id: str) -> None:
        self._outputs.cancel(request_id)

    def on_memory_wanted(self, call: Callable[[], None]) -> None:
        """Set the function to call, on any thread, when another model needs the prefix cache's memory."""
        self._memory.share.on_eviction_request = call

    @discards_if_raised
    def release_memory(self) -> None:
        """Evict cached prefixes for another model that has requested memory."""
        self._idle_work.release()
        self._memory.evict_for_others()

    @discards_if_raised
    def release_caches(self) -> None:
        """Evict all cached prefixes and features that no prompt is being restored from."""
        self._idle_work.release()
        self._memory.evict_all()

    @discards_if_raised
    def step(self) -> Events:
        """Compute one decode step for all sequences and a bounded prefill chunk; return the events.

        Raises:
            Exception: An error of the model in a batch step, or of the device; the engine is unusable
                afterwards. An error of the model during prefill fails only the prompt's request.
        """
        self._memory.evict_for_others()
        self._outputs.fail_all(self.admission.start_decoding())
        self._batches.maybe_rearrange()
        for sequence in self.admission.preemption.reserve_step():
            self._outputs.finish_at_length(sequence)
        progresses = self._batches.launch(alone=not len(self._prefill))
        self._batches.record_memory()
        for batch in self._batches:
            for sequence, token in batch.read():
                self._outputs.append_token(batch, sequence, token)
                progresses = True
        self._batches.timer.on_tokens_read()
        if self.prefix_cache is not None and self.prefix_cache.stored is not None:
            self.prefix_cache.stored.advance(idle=not len(self._batches) and not len(self._prefill))
        for batch in self._batches:
            self._outputs.fail_all(batch.sample())
        self._batches.remove_finished()
        self._batches.record_memory()
        self._admit_waiting()
        progress, chunks = self._prefill.advance(self._batches.step_ms, self._batches.copy_ms)
        self._batches.timer.on_prefill_launched(chunks, self._prefill.restored_bytes, self._prefill.waited_ms)
        for sequence, event in progress:
            if not (sequence.preempted or sequence.index):
                self._outputs.emit(sequence, [event])
            self._outputs.emit_prompt(sequence, keep=1)
        self._outputs.fail_all(self._prefill.pop_failed())
        if not progresses and len(self._batches) and not len(self._prefill):
            grammar_threads().wait(_POLL_SECONDS)
        self._steps += 1
        if self._steps % _CLEAR_CACHE_STEPS == 0:
            mx.clear_cache()
        return self._outputs.pop_events()

    def close(self) -> None:
        """Release the model and the state of its requests, then raise any device failure."""
        self._batches.close()
        self.adapters.close()
        self._idle_work, self._features = IdleWork(None, self._memory), None
        self._prefill = PrefillQueue(None)
        self.admission = Admission(self._memory, self._prefill, self._batches)
        self._outputs = RequestOutputs(self.admission, self._prefill, self._batches)
        try:
            if self.prefix_cache is not None:
                self.prefix_cache.close(self._close_timeout)
        finally:
            self._memory.share.close()
        synchronize_streams()
        mx.clear_cache()

    def _admit_waiting(self) -> None:
        """Admit waiting sequences to prefill as memory allows; finish or fail those that can never fit."""
        for sequence in self.admission.admit_waiting():
            if sequence.finished:  # with an earlier choice of its request, which failed
                continue
            if self._outputs.has_begun(sequence):
                for choice in (sequence, *parallel_samples_of(sequence)):
                    if not choice.finished:  # as it would be after the failure of the one before
                        self._outputs.finish_at_length(choice)
            else:
                self._outputs.fail(sequence, self.admission.prompt_too_long(sequence))


_RETRY = 10.0  # Seconds until the next attempt after memory was short


class IdleWork:
    """Runs the rest of a model's batch-invariance check, and releases its memory on request. `check`:
    background check; None if there is nothing to do; `memory`: memory account charged for the check's caches.
    """

    def __init__(self, check: BackgroundCheck | None, memory: KvMemory) -> None:
        self._check = check
        self._memory = memory
        self._is_short = False
        if check is not None and not self._reserve(check):
            check.pause()

    @property
    def delay(self) -> float | None:
        """Seconds without requests after which `advance` is due; None if there is nothing to do."""
        delay = None if self._check is None else self._check.delay
        return max(delay, _RETRY) if delay is not None and self._is_short else delay

    def advance(self) -> None:
        """Compute one pass if there is memory for it."""
        if self._check is None or self._check.delay is None:
            return
        self._is_short = not self._reserve(self._check)
        if self._is_short:
            return
        self._check.advance()
        if self._check.delay is None:
            self.release()
            self._check = None

    def release(self) -> None:
        self._memory.reclaim()

    def _reserve(self, check: BackgroundCheck) -> bool:
        return self._memory.reserve_idle(self._memory.size_model.nbytes(ROWS, TOKENS), check.pause)


log = get_logger(__name__)


def open_text_engine(
    load: ModelLoad,
    adapter: Adapter,
    load_lazily: Callable[[Path, Settings], Any] = load_text_lazily,
    features_of: Callable[[Any], FeatureSource | None] = lambda model: None,
    *,
    is_part: bool = False,
) -> TextEngine:
    """Load a model's weights and create its engine, confined to this thread.

    Args:
        adapter: Adapter that prepares requests on another thread; its detected formats are reused here.
        is_part: True if other processes have layers of the model: its prefixes do not outlast it.

    Raises:
        ProblemError: 503 `load_failed`, or 507 if there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    from greenroom.engine.adapters.adapter import OutputAdapter
    from greenroom.engine.text.speculation import load_speculation
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer

    folder, settings, is_abandoned = load.folder, load.settings, load.is_abandoned
    tokenizer = load_tokenizer(folder, settings.trust_remote_code)
    log.info("thinking", **adapter.thinking.describe())
    on_host = None if is_part else open_host_tier(load.account.held, folder, settings)
    with load.open_share() as (share, charge):
        unproved: list[BackgroundCheck] = []
        model = load_model(
            folder, settings, load.progress, is_abandoned, charge, unproved.append, load_lazily
        )
        least = max(settings.min_prefill_chunk, least_chunk())
        prefill_policy = PrefillPolicy(max_stall=settings.max_stall, min_chunk=least)
        prefix_cache = None
        if settings.prefix_cache_bytes:
            on_disk = settings.prefix_cache_dir is not None
            stored = open_disk_tier(folder, settings, model) if on_disk else on_host
            prefix_cache = PrefixCache(settings.prefix_cache_bytes, stored)
        speculation = load_speculation(model, tokenizer, settings, is_abandoned, charge)
        return TextEngine(
            model,
            OutputAdapter(tokenizer, adapter.choice),
            prefill_policy,
            prefix_cache=prefix_cache,
            close_timeout=settings.shutdown_timeout / 4,
            speculation=speculation,
            share=share,
            max_rows=settings.max_batch,
            background_check=unproved[0] if unproved else None,
            features=features_of(model),
            clock=load.clock,
            history=PromptHistory() if settings.explain else None,
            adapter_bytes=settings.adapter_bytes,
        )
