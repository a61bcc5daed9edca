"""Figures of a loaded model at one moment, for metrics and tests: plain numbers that may leave its thread."""

from __future__ import annotations

import attrs


@attrs.frozen
class AdmissionStatistics:
    """What lack of memory has cost since the model was loaded.

    Args:
        preempted: Times that a sequence was stopped and its cache released.
        resumed: Times that one was let in again.
        cut: Answers that ended early because they did not fit alone.
    """

    preempted: int = 0
    resumed: int = 0
    cut: int = 0


@attrs.frozen
class MemoryStatistics:
    """Bytes that one model holds of the memory account, and buffers in which its prefix cache is.

    Args:
        weights: Of the model, and of one that drafts for it.
        running: Of KV caches of prompts and answers under way, with what is reserved for them.
        cached: Of the prefix cache.
        cached_buffers: Arrays of the prefix cache: macOS lets a process have 499,000 in all.
        cached_buffer_limit: Arrays that the prefix caches of all models may have now; None is no limit.
    """

    weights: int
    running: int
    cached: int
    cached_buffers: int
    cached_buffer_limit: int | None


@attrs.frozen
class PrefixCacheStatistics:
    """Figures of a prefix cache's tier in memory; `hits`, `misses` and `evictions` of its whole life."""

    nbytes: int
    buffers: int
    nodes: int
    hits: int
    misses: int
    evictions: int


@attrs.frozen
class SpeculationStatistics:
    """Tokens that were drafted and verified since the model was loaded, and those of them that were right."""

    drafted: int
    accepted: int


@attrs.frozen
class TextEngineStatistics:
    """A snapshot of a text engine.

    Args:
        requests: Requests that are not finished.
        waiting: Sequences that wait for memory.
        prefilling: Sequences whose prompts are not wholly computed.
        prefilled: Sequences whose prompts are computed and that wait to join a batch.
        decoding: Sequences that get a token in every step.
        batches: Of each batch, its rows and the length in tokens to which they are padded.
        steps: Steps since the model was loaded.
        prefix_cache: None if the model has none.
        speculation: None if nothing is drafted.
    """

    requests: int
    waiting: int
    prefilling: int
    prefilled: int
    decoding: int
    batches: tuple[tuple[int, int], ...]
    steps: int
    memory: MemoryStatistics
    admission: AdmissionStatistics
    prefix_cache: PrefixCacheStatistics | None
    speculation: SpeculationStatistics | None
