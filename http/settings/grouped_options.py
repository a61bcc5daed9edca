"""Command options in groups by topic."""

from __future__ import annotations

import click

GROUPS: dict[str, tuple[str, ...]] = {
    "Models": (
        "aliases",
        "max_context",
        "max_loaded_models",
        "tool_injection",
        "tool_parsers",
        "thinking_parsers",
        "system_prompt",
        "system_prompts",
        "vision",
        "trust_remote_code",
    ),
    "Network": (
        "host",
        "port",
        "listen",
        "allowed_hosts",
        "allowed_origins",
        "max_connections",
        "idle_connection",
        "max_body_bytes",
        "max_upload_bytes",
        "shutdown_timeout",
    ),
    "Memory and caches": (
        "memory_bytes",
        "kv_cache_bytes",
        "kv_bits",
        "prefix_cache_bytes",
        "prefix_cache_dir",
        "prefix_cache_disk_bytes",
        "prefix_cache_disk_free_bytes",
    ),
    "Speed": (
        "device",
        "dtype",
        "max_batch",
        "max_queue",
        "max_stall",
        "min_prefill_chunk",
        "speculation",
        "draft_model",
    ),
    "Images": (
        "images_fetch",
        "images_fetch_hosts",
        "images_greedy",
        "images_ids",
        "images_history",
        "images_max_count",
        "images_max_pages",
    ),
    "Storage": ("db", "store_responses", "store_retention_days", "store_max_bytes"),
    "Defaults of answers": ("temperature", "top_p", "top_k", "min_p", "max_tokens"),
    "Logs": ("log_format", "log_level"),
}
"""Settings by topic; each setting with a flag of `serve` belongs to one group."""


class GroupedCommand(click.Command):
    """A command whose help lists options by group; options that are not settings come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx)) is not None
        }
        for title, names in GROUPS.items():
            if found := [records.pop(name) for name in names if name in records]:
                with formatter.section(title):
                    formatter.write_dl(found)
        with formatter.section("Other options"):
            formatter.write_dl([*records.values()])
