"""The figures of a model, from its reports: those of its engine now, and totals over all its loads."""

from __future__ import annotations

from collections import Counter

import attrs

from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.statistics import (
    EngineSnapshot,
    Histogram,
    HistogramSnapshot,
    ModelTotals,
    PhaseSeconds,
    RequestDurations,
)
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.model_protocol import (
    Crashed,
    HungWorkerReturned,
    LoadFailed,
    LoadRefused,
    ModelReport,
    RequestEnded,
    Sized,
    StateChanged,
    Unloaded,
    WorkerHung,
)

BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
    *(5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""Bounds in seconds of the durations of requests: vLLM's of the first token, with fewer below."""

_MOST_ADAPTERS = 64
"""Most adapters of a model that are counted by name."""


class _Durations:
    def __init__(self) -> None:
        names = [field.name for field in attrs.fields(RequestDurations)]
        self._histograms = {name: Histogram(BOUNDS) for name in names}

    def observe(self, ended: RequestEnded) -> None:
        timing = ended.timing
        if timing is None or ended.reason in (None, "cancelled"):
            return
        before = timing.queued + timing.prefill
        observed = {**attrs.asdict(timing), "whole": before + timing.decode}
        if ended.usage.generated:
            observed["first_token"] = before
        for name, seconds in observed.items():
            self._histograms[name].observe(seconds)

    def snapshot(self) -> RequestDurations:
        return RequestDurations(**{name: each.snapshot() for name, each in self._histograms.items()})


class ModelFigures:
    """The figures of a model.

    Attributes:
        snapshot: Latest figures of its engine; None if it is not loaded.
        restarts: Number of loads that followed an error.
        evictions: Number of unloads that made room for another model.
        listed: True once the catalog has the model, or its files were opened.
    """

    def __init__(self) -> None:
        self.snapshot: EngineSnapshot | None = None
        self.restarts = self.evictions = 0
        self.listed = False
        self._past = self._shown = Usage()
        self._intervals: HistogramSnapshot | None = None
        self._preempted = self._loads = self._load_failures = self._texts = self._documents = 0
        self._phases = PhaseSeconds()
        self._finished: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._adapted: Counter[str] = Counter()
        self._durations = _Durations()

    def record(self, report: ModelReport) -> bool:
        """Record the figures of a report; return whether it consists of nothing else."""
        match report:
            case EngineSnapshot():
                self.snapshot = report
                return True
            case RequestEnded():
                self._record_end(report)
                return True
            case Sized():
                self.listed = True
            case StateChanged(ModelState.READY):
                self._loads += 1
            case LoadFailed() | Crashed() | WorkerHung():
                self._load_failures += 1
                self._end_load()
            case Unloaded() | LoadRefused() | HungWorkerReturned():
                self._end_load()
        return False

    def record_failure(self, code: str) -> None:
        self._failed[code] += 1

    def totals(self) -> ModelTotals:
        """Return the totals since the server's start."""
        # A request suspended at an unload leaves its engine's figures until the next engine has it.
        self._shown = _larger(self._shown, self._usage())
        return ModelTotals(
            self._shown,
            dict(self._finished),
            dict(self._failed),
            self._durations.snapshot(),
            self._all_intervals(),
            texts=self._texts,
            documents=self._documents,
            preempted=self._all_preempted(),
            loads=self._loads,
            load_failures=self._load_failures,
            restarts=self.restarts,
            evictions=self.evictions,
            phases=self._all_phases(),
            adapted=dict(self._adapted),
        )

    def _record_end(self, ended: RequestEnded) -> None:
        if ended.reason is None:
            self._failed[ended.problem or "unknown"] += 1
        else:
            self._finished[ended.reason] += 1
            self._texts += ended.texts
            self._documents += ended.documents
        if name := ended.adapter:
            known = name in self._adapted or len(self._adapted) < _MOST_ADAPTERS
            self._adapted[name if known else "other"] += 1
        self._durations.observe(ended)

    def _end_load(self) -> None:
        self._past, self._intervals = self._usage(), self._all_intervals()
        self._phases, self._preempted = self._all_phases(), self._all_preempted()
        self.snapshot = None

    def _usage(self) -> Usage:
        return self._past if self.snapshot is None else self._past.with_request(self.snapshot.usage)

    def _all_preempted(self) -> int:
        return self._preempted + (0 if self.snapshot is None else self.snapshot.preempted)

    def _all_phases(self) -> PhaseSeconds:
        return self._phases if self.snapshot is None else self._phases.plus(self.snapshot.phases)

    def _all_intervals(self) -> HistogramSnapshot | None:
        present = None if self.snapshot is None else self.snapshot.token_intervals
        if present is None or self._intervals is None:
            return present or self._intervals
        return self._intervals.plus(present)


def _larger(one: Usage, other: Usage) -> Usage:
    names = [field.name for field in attrs.fields(Usage)]
    return Usage(**{name: max(getattr(one, name), getattr(other, name)) for name in names})
