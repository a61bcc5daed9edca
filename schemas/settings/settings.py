"""All settings of an operator, with type, range, default and meaning.

`greenroom.http.settings.sources` reads them from a TOML file, `GREENROOM_*` variables and command-line flags,
and takes the help texts from here.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import attrs

from greenroom.schemas.messages.generation import GenerationParameters

MEGABYTE = 1024 * 1024


def _check_range(_instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Reject a value out of range: `low` and `high` are inclusive bounds, `above` is exclusive; NaN fails."""
    if value is None:
        return
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    if not (
        (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)
    ):
        raise ValueError(f"must be {range_of(attribute)}")


def range_of(attribute: attrs.Attribute[Any]) -> str:
    """Return a description of a numeric setting's range; empty if it is unlimited."""
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    if numbers := attribute.metadata["one_of"]:
        return " or ".join(map(str, numbers))
    if low is not None and high is not None:
        return f"{_in_digits(low)} to {_in_digits(high)}"
    ends = ((above, "above"), (low, "at least"), (high, "at most"))
    return " and ".join(f"{words} {_in_digits(end)}" for end, words in ends if end is not None)


def _in_digits(number: float) -> str:
    return f"{number:,}" if number >= 1e6 else f"{number:g}"


def _setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    one_of: tuple[str | int, ...] = (),
) -> Any:
    among = attrs.validators.in_(one_of if default is not None else (None, *one_of))
    numbers = tuple(value for value in one_of if isinstance(value, int))
    ends = {"low": low, "high": high, "above": above, "one_of": numbers}
    return attrs.field(
        default=default,
        validator=among if one_of else _check_range,
        metadata={**ends, "meaning": meaning},
    )


def _generation_default(name: str, meaning: str) -> Any:
    """Return a setting field for a request parameter's default, with the parameter's range."""
    bounds = attrs.fields_dict(GenerationParameters)[name].metadata
    return _setting(None, meaning, low=bounds.get("low"), high=bounds.get("high"), above=bounds.get("above"))


Device = Literal["auto", "cpu", "gpu"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Speculation = Literal["off", "lookup", "draft"]
Aliases = tuple[tuple[str, str], ...]
"""Pairs of an additional name, or a pattern of names, and its model; the first match applies."""
Switch = Literal["off", "on"]
Fetching = Literal["off", "https", "http"]
ImageHistory = Literal["all", "last"]
LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


def _check_switches(_instance: Any, attribute: attrs.Attribute[Any], value: Aliases) -> None:
    """Reject a table whose values are not `on` or `off`."""
    if not all(switch in ("on", "off") for _, switch in value):
        raise ValueError(f"`{attribute.name}` must be a table of `on` and `off`")


def _switches(meaning: str) -> Any:
    """Return the attrs field of a setting that is a table of `on` or `off` by model name."""
    ends = {"low": None, "high": None, "above": None, "one_of": ()}
    metadata = {**ends, "meaning": meaning, "switches": True}
    return attrs.field(default=(), validator=_check_switches, metadata=metadata)


@attrs.frozen
class Settings:
    """The settings of a Greenroom server."""

    models: tuple[str, ...] = _setting(
        (), "Hub ids or local folders of the models to serve; the first is also called `default`."
    )
    aliases: Aliases = _setting(
        (),
        "Further names of models, as a table `[aliases]` or `NAME=MODEL`; `*` in a name is a wildcard.",
    )
    host: str = _setting(
        "localhost",
        "Address to listen on; `localhost` is 127.0.0.1 and, where there is IPv6, ::1.",
    )
    port: int = _setting(8000, "TCP port to listen on; 0 picks a free one.", low=0, high=65535)
    listen: tuple[str, ...] = _setting(
        (), "Further addresses to listen on, as `HOST:PORT`; Ollama's port is 11434."
    )
    max_loaded_models: int | None = _setting(None, "Models kept loaded at once (default: any number).", low=1)
    max_batch: int = _setting(
        32, "Answers that one model generates at once; a request with `n` counts `n` times.", low=1
    )
    max_queue: int = _setting(256, "Requests that may wait for one model before the next is refused.", low=0)
    max_stall: float = _setting(
        2.0,
        "Length of a prefill chunk, in decode steps of the running streams. A larger value answers new "
        "prompts sooner and delays the streams more; inf computes prompts whole.",
        above=0,
    )
    min_prefill_chunk: int = _setting(
        4, "Minimum number of tokens of a waiting prompt that are computed at each step.", low=1
    )
    device: Device = _setting(
        "auto", "Where models compute: `auto`, `cpu` or `gpu`.", one_of=get_args(Device)
    )
    dtype: Dtype = _setting(
        "auto",
        "Type of unquantised weights: `float32`, `bfloat16` or `float16`; `auto` keeps the file's.",
        one_of=get_args(Dtype),
    )
    kv_bits: int | None = _setting(
        None,
        "Bits per number in the KV cache of full attention. Fewer bits hold longer contexts and change "
        "answers a little (default: unquantised).",
        one_of=(4, 8),
    )
    max_context: int | None = _setting(
        None, "Longest context of every model, in tokens (default: the model's own).", low=16
    )
    prefix_cache_bytes: int = _setting(
        1024 * MEGABYTE,
        "Memory for each model's prefix cache, which prompts with the same beginning reuse; 0 is off.",
        low=0,
    )
    prefix_cache_dir: str | None = _setting(
        None, "Folder that keeps the prefix cache over restarts; its files contain the prompts."
    )
    prefix_cache_disk_bytes: int = _setting(
        10 * 1024 * MEGABYTE, "Disk space for the prefix caches of all models together.", low=1_000_000
    )
    prefix_cache_disk_free_bytes: int = _setting(
        1024 * MEGABYTE,
        "Disk space that prefix caches leave free; the oldest files are removed for it.",
        low=0,
    )
    speculation: Speculation | None = _setting(
        None,
        "Draft tokens for a lone request, if that is measured to be faster: `lookup` from earlier text, "
        "`draft` by `draft_model`. Answers stay the same (default: `draft` with a "
        "`draft_model`, else `off`).",
        one_of=get_args(Speculation),
    )
    draft_model: str | None = _setting(
        None, "Hub id or local folder of a smaller model with the same vocabulary, which drafts tokens."
    )
    memory_bytes: int | None = _setting(
        None,
        "Memory for weights, running requests and prefix caches of all models together (default: 85 % of the "
        "device's).",
        low=MEGABYTE,
    )
    kv_cache_bytes: int | None = _setting(
        None,
        "Memory for running requests and prefix caches of all models together (default: `memory_bytes` less "
        "the weights).",
        low=MEGABYTE,
    )
    tool_injection: bool = _setting(
        True, "Describe tools in the prompt if a model's template cannot; when off, such requests are a 400."
    )
    tool_parsers: Aliases = _setting(
        (),
        "Parsers of tool calls, as a table `[tool_parsers]` or `MODEL=PARSER`; `*` is a wildcard (default: "
        "the parser that reads the model's own template).",
    )
    thinking_parsers: Aliases = _setting((), "Parsers of reasoning, likewise: `MODEL=PARSER`.")
    db: str | None = _setting(
        None,
        "Database file of responses and conversations, or `:memory:` (default: `greenroom.db` in the user's "
        "data folder).",
    )
    store_responses: bool = _setting(
        True, "Store responses, conversations and completions if clients request it."
    )
    store_retention_days: float = _setting(
        30.0, "Days after which unused stored data is deleted; inf keeps it.", above=0
    )
    store_max_bytes: int | None = _setting(
        None, "Largest database, in bytes; storing more is a 507 (default: no limit).", low=1
    )
    system_prompt: str | None = _setting(
        None, "File with the system message of conversations that have none, in any protocol."
    )
    system_prompts: Aliases = _setting(
        (),
        "The same for single models, as a table `[system_prompts]` or `MODEL=FILE`.",
    )
    images_fetch: Fetching = _setting(
        "off",
        "Fetch images and documents that requests name by address: by `https` only, or also by `http`. "
        "Private addresses are refused.",
        one_of=get_args(Fetching),
    )
    images_fetch_hosts: tuple[str, ...] = _setting(
        (), "Hosts that may have private addresses and any port when files are fetched."
    )
    images_greedy: bool = _setting(
        True, "Use temperature 0 for requests with images, unless they or `temperature` set another."
    )
    images_ids: Switch = _setting(
        "off",
        "Number the images of a conversation for the model, and append a table of the numbers to answers, so "
        "that they stay the same when clients drop the images.",
        one_of=get_args(Switch),
    )
    images_history: ImageHistory = _setting(
        "all",
        "Images that the model sees: `all`, or with `last` those of the last user's message, which is then "
        "answered alone.",
        one_of=get_args(ImageHistory),
    )
    images_max_count: int = _setting(
        5,
        "Most images that a request shows to a model; the newest are kept.",
        low=1,
        high=1000,
    )
    images_max_pages: int = _setting(
        20, "Most pages of documents that a request shows to a model.", low=1, high=1000
    )
    vision: Aliases = _switches(
        "Vision of single models, as a table `[vision]` or `MODEL=off`, which loads the text half alone; "
        "`*` is a wildcard (default: `on`).",
    )
    trust_remote_code: bool = _setting(False, "Let a model's folder run its own Python code.")
    shutdown_timeout: float = _setting(30.0, "Longest time of a shutdown, in seconds.", low=0, high=86400)
    log_format: LogFormat = _setting(
        "console", "`console` for people, `json` for machines.", one_of=get_args(LogFormat)
    )
    log_level: LogLevel = _setting(
        "info",
        "Lowest level that is logged: `debug`, `info`, `warning` or `error`; prompts and answers appear at "
        "debug only.",
        one_of=get_args(LogLevel),
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Host names that requests may use, besides this machine's own."
    )
    allowed_origins: tuple[str, ...] = _setting((), "Web origins whose pages may call the server.")
    max_body_bytes: int | None = _setting(
        None,
        "Largest request body, in bytes (default: 80 MB with images or other files, else 32 MB).",
        low=1,
    )
    max_upload_bytes: int = _setting(
        512 * MEGABYTE, "Largest file of a form, in bytes; it is kept on disk.", low=1
    )
    max_connections: int = _setting(
        1024, "Connections open at once, if the process may have enough descriptors.", low=1
    )
    idle_connection: float = _setting(60.0, "Seconds after which an idle connection is closed.", above=0)
    temperature: float | None = _generation_default(
        "temperature", "Randomness of answers; 0 is greedy (default: the model's own)."
    )
    top_p: float | None = _generation_default(
        "top_p", "Sample from the smallest set of tokens with this probability (default: the model's own)."
    )
    top_k: int | None = _generation_default(
        "top_k", "Sample from the k likeliest tokens; 0 is off (default: the model's own)."
    )
    min_p: float | None = _generation_default(
        "min_p",
        "Sample from tokens at least this fraction as likely as the likeliest (default: the model's own).",
    )
    max_tokens: int | None = _generation_default(
        "max_tokens", "Longest answer, in tokens (default: half the context for chat)."
    )
