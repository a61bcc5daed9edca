"""The figures of a model since the server's start, over all its loads: plain numbers for monitoring."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.histogram import HistogramSnapshot
from greenroom.schemas.events.statistics import PhaseSeconds


@attrs.frozen
class RequestDurations:
    """The seconds that completed requests took; failed and cancelled ones are left out.

    Args:
        first_token: From the request to its first token, of requests that generate any.
        whole: From the request to its end.
        queued: Before the prompt was computed.
        prefill: While the prompt was computed.
        decode: While the answer was computed.
    """

    first_token: HistogramSnapshot
    whole: HistogramSnapshot
    queued: HistogramSnapshot
    prefill: HistogramSnapshot
    decode: HistogramSnapshot


@attrs.frozen
class ModelTotals:
    """The figures of a model since the server's start. None of them ever decreases.

    Args:
        usage: Amounts computed, in the kind's own units, those of unfinished answers included.
        finished: Numbers of requests by finish reason.
        failed: Numbers of requests by the code of their problem.
        durations: Seconds that requests took.
        token_intervals: Seconds between the tokens of an answer; None if it has written none.
        texts: Number of embedded texts.
        documents: Number of scored documents.
        preempted: Number of preemptions.
        loads: Number of completed loads.
        load_failures: Number of loads that failed, and of crashes and hangs of a loaded model.
        restarts: Number of loads that followed an error.
        evictions: Number of unloads that made room for another model.
        phases: Seconds of prefill and decode.
    """

    usage: Usage
    finished: Mapping[str, int]
    failed: Mapping[str, int]
    durations: RequestDurations
    token_intervals: HistogramSnapshot | None = None
    texts: int = 0
    documents: int = 0
    preempted: int = 0
    loads: int = 0
    load_failures: int = 0
    restarts: int = 0
    evictions: int = 0
    phases: PhaseSeconds = PhaseSeconds()
