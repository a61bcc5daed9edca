"""Settings of memory and caches."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.setting_fields import MEGABYTE, setting


@attrs.frozen(slots=False)
class Memory:
    """Settings of memory and caches."""

    memory_bytes: int | None = setting(
        None,
        "Memory for weights, running requests and prefix caches of all models together (default: 85 % of the "
        "device's).",
        low=MEGABYTE,
    )
    kv_cache_bytes: int | None = setting(
        None,
        "Memory for running requests and prefix caches of all models together (default: `memory_bytes` less "
        "the weights).",
        low=MEGABYTE,
    )
    kv_bits: int | None = setting(
        None,
        "Bits per number in the KV cache of full attention. Fewer bits hold longer contexts and change "
        "answers a little (default: unquantised).",
        one_of=(4, 8),
    )
    prefix_cache_bytes: int = setting(
        1024 * MEGABYTE,
        "Memory for each model's prefix cache, which prompts with the same beginning reuse; 0 is off.",
        low=0,
    )
    isolate_prefixes: bool = setting(
        False,
        "Reuse cached prefixes only among requests with the same API key. Otherwise response times can tell "
        "a client what others have sent.",
    )
    prefix_cache_dir: str | None = setting(
        None, "Folder that keeps the prefix cache over restarts; its files contain the prompts."
    )
    prefix_cache_disk_bytes: int = setting(
        10 * 1024 * MEGABYTE, "Disk space for the prefix caches of all models together.", low=1_000_000
    )
    prefix_cache_disk_free_bytes: int = setting(
        1024 * MEGABYTE,
        "Disk space that prefix caches leave free; the oldest files are removed for it.",
        low=0,
    )
