"""Settings of the computation."""

from __future__ import annotations

from typing import Literal, get_args

import attrs

from greenroom.schemas.settings.setting_fields import setting

Device = Literal["auto", "cpu", "gpu"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Speculation = Literal["off", "lookup", "draft"]


@attrs.frozen(slots=False)
class Speed:
    """Settings of the computation."""

    device: Device = setting("auto", "Where models compute: `auto`, `cpu` or `gpu`.", one_of=get_args(Device))
    dtype: Dtype = setting(
        "auto",
        "Type of computation, and of unquantised weights: `float32`, `bfloat16` or `float16`; `auto` keeps "
        "the file's, but takes float32 for quantised models and Whisper on a CPU.",
        one_of=get_args(Dtype),
    )
    max_batch: int = setting(
        32, "Answers that one model generates at once; a request with `n` counts `n` times.", low=1
    )
    max_queue: int = setting(256, "Requests that may wait for one model before the next is refused.", low=0)
    queue_timeout: float | None = setting(
        None,
        "Seconds that a request may wait for a model before it fails with 503, unless it is streamed; loads "
        "do not count (default: no limit).",
        above=0,
    )
    max_stall: float = setting(
        2.0,
        "Longest pause of running streams for a chunk of a prompt, in decode steps. A larger value answers "
        "new prompts sooner and delays the streams more; inf computes prompts whole.",
        above=0,
    )
    min_prefill_chunk: int = setting(
        4, "Minimum number of tokens of a waiting prompt that are computed at each step.", low=1
    )
    speculation: Speculation | None = setting(
        None,
        "Draft tokens for a lone request, if that is measured to be faster: `lookup` from earlier text, "
        "`draft` by `draft_model`. Answers stay the same (default: `draft` with a "
        "`draft_model`, else `off`).",
        one_of=get_args(Speculation),
    )
    draft_model: str | None = setting(
        None, "Hub id or local folder of a smaller model with the same vocabulary, which drafts tokens."
    )
