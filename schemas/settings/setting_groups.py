"""Fields of settings: default, range, permitted values and meaning."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from greenroom.schemas.messages.generation import GenerationParameters

MEGABYTE = 1024 * 1024
T = TypeVar("T")


def setting(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    one_of: tuple[str | int, ...] = (),
    secret: bool = False,
) -> Any:
    """Return the attrs field of a setting.

    Args:
        default: Value if no source sets it; None if the setting may be absent.
        above: Value that must be exceeded.
        one_of: Permitted values; empty for any.
        secret: True if its value is shown to nobody.
    """
    numbers = tuple(value for value in one_of if isinstance(value, int))
    ends = {"low": low, "high": high, "above": above, "one_of": numbers}
    return attrs.field(
        default=default,
        validator=_check,
        repr=not secret,
        metadata={**ends, "meaning": meaning, "secret": secret},
    )


def generation_default(name: str, meaning: str) -> Any:
    """Return the attrs field of a setting that gives a generation parameter where a request has none.

    Its range is that of the parameter.
    """
    bounds = attrs.fields_dict(GenerationParameters)[name].metadata
    return setting(None, meaning, low=bounds.get("low"), high=bounds.get("high"), above=bounds.get("above"))


def setting_table(kind: type, meaning: str) -> Any:
    """Return the attrs field of a setting that is a table of tables, each an instance of `kind`."""
    ends = {"low": None, "high": None, "above": None, "one_of": ()}
    metadata = {**ends, "meaning": meaning, "table_of": kind, "secret": False}
    return attrs.field(default=(), validator=_check, metadata=metadata)


def merge_tables(kind: type[T], tables: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return tables by name; of several with one name, the first that sets a value decides it."""
    defaults = {field.name: field.default for field in attrs.fields(kind)}  # type: ignore[arg-type]
    merged: dict[str, dict[str, Any]] = {}
    for name, table in tables:
        values = {key: getattr(table, key) for key in defaults if getattr(table, key) != defaults[key]}
        merged[name] = {**values, **merged.get(name, {})}
    return {name: kind(**values) for name, values in merged.items()}


def own(group: type, name: str, meaning: str | None = None) -> Any:
    """Return the attrs field of one model's value for a server's setting, absent by default.

    Args:
        group: Class with the server's setting.
        meaning: Help text, if it differs.
    """
    server = attrs.fields_dict(group)[name]
    return attrs.field(
        default=None,
        validator=_check,
        metadata={**server.metadata, "meaning": meaning or server.metadata["meaning"]},
    )


def range_of(attribute: attrs.Attribute[Any]) -> str:
    """Return a description of a numeric setting's range; empty if it is unlimited."""
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    if numbers := attribute.metadata["one_of"]:
        return " or ".join(map(str, numbers))
    if low is not None and high is not None:
        return f"{_in_digits(low)} to {_in_digits(high)}"
    ends = ((above, "above"), (low, "at least"), (high, "at most"))
    return " and ".join(f"{words} {_in_digits(end)}" for end, words in ends if end is not None)


@functools.cache
def kinds_of(group: type) -> dict[str, Any]:
    """Return the types of a class's settings, without None."""
    return {field.name: _without_none(field.type) for field in attrs.fields(attrs.resolve_types(group))}


def expected(attribute: attrs.Attribute[Any], kind: Any) -> str:
    """Return a description of a setting's values."""
    if table := attribute.metadata.get("table_of"):
        return f"pairs of a name and a {table.__name__}"
    if get_origin(kind) is tuple:
        return "a list of strings"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    words, values = _WORDS.get(kind, "a string"), range_of(attribute)
    return f"{words}, {values}" if values else words


_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}


def _check(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Reject a value of another type, or out of range.

    Args:
        instance: Settings with the value; None for a value that is converted already.
    """
    if value is None and attribute.default is None:
        return
    group: type | None = None if instance is None else instance.__class__
    kind = None if group is None else kinds_of(group)[attribute.name]
    if (instance is not None and not _fits(kind, value)) or not _is_in_range(attribute, value):
        shown = "" if attribute.metadata["secret"] else f" = {value!r}"
        raise ValueError(f"{attribute.name}{shown}: must be {expected(attribute, kind)}")


def _fits(kind: Any, value: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and inner[-1] is ...:
        return isinstance(value, tuple | list) and all(_fits(inner[0], each) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, inner, value))
    if origin is Literal:
        return value in inner
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def _is_in_range(attribute: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether a value is in range; `above` alone is exclusive, and NaN is in none."""
    low, high, above = (attribute.metadata[end] for end in ("low", "high", "above"))
    among = attribute.metadata["one_of"]
    return (
        (not among or value in among)
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
    )


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


def _in_digits(number: float) -> str:
    return f"{number:,}" if number >= 1e6 else f"{number:g}"


@attrs.frozen(slots=False)
class Audit:
    """Settings of the audit: one row in the database for each request."""

    audit: bool = setting(
        True, "Keep a row for each request in the database: who, when, how long, how many tokens."
    )
    audit_content: bool = setting(
        False, "Keep the beginning of each request's body and of its answer in the audit, too."
    )
    trace_content: bool = setting(False, "Put prompts and answers into spans of OpenTelemetry, too.")
    audit_days: float = setting(
        30.0, "Days after which a row of the audit is deleted; inf keeps it.", above=0
    )
    audit_rows: int = setting(1_000_000, "Most rows of the audit; the oldest are deleted.", low=1)


@attrs.frozen(slots=False)
class GenerationDefaults:
    """Defaults for generation parameters that a request does not set."""

    temperature: float | None = generation_default(
        "temperature", "Randomness of answers; 0 is greedy (default: the model's own)."
    )
    top_p: float | None = generation_default(
        "top_p", "Sample from the smallest set of tokens with this probability (default: the model's own)."
    )
    top_k: int | None = generation_default(
        "top_k", "Sample from the k likeliest tokens; 0 is off (default: the model's own)."
    )
    min_p: float | None = generation_default(
        "min_p",
        "Sample from tokens at least this fraction as likely as the likeliest (default: the model's own).",
    )
    max_tokens: int | None = generation_default(
        "max_tokens", "Longest answer, in tokens (default: half the context for chat)."
    )


Switch = Literal["off", "on"]
Fetching = Literal["off", "https", "http"]
ImageHistory = Literal["all", "last"]


@attrs.frozen(slots=False)
class Images:
    """Settings of images and documents in requests."""

    images_fetch: Fetching = setting(
        "off",
        "Fetch images and documents that requests name by address: by `https` only, or also by `http`. "
        "Private addresses are refused.",
        one_of=get_args(Fetching),
    )
    images_fetch_hosts: tuple[str, ...] = setting(
        (), "Hosts from which files are fetched even at a private address, and at any port."
    )
    images_greedy: bool = setting(
        True, "Use temperature 0 for requests with images, unless they or `temperature` set another."
    )
    images_ids: Switch = setting(
        "off",
        "Number the images of a conversation for the model, and append a table of the numbers to answers, so "
        "that they stay the same when clients drop the images.",
        one_of=get_args(Switch),
    )
    images_history: ImageHistory = setting(
        "all",
        "Images that the model sees: `all`, or `last`: those of the last user's message. If it has any, only "
        "system messages are kept before it.",
        one_of=get_args(ImageHistory),
    )
    images_max_count: int = setting(
        5, "Most images that a request shows to a model; the newest are kept.", low=1, high=1000
    )
    images_max_pages: int = setting(
        20, "Most pages of documents that a request shows to a model.", low=1, high=1000
    )


LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@attrs.frozen(slots=False)
class Logs:
    """Settings of the log."""

    log_format: LogFormat = setting(
        "console", "`console` for people, `json` for machines.", one_of=get_args(LogFormat)
    )
    log_level: LogLevel = setting(
        "info",
        "Lowest level that is logged: `debug`, `info`, `warning` or `error`.",
        one_of=get_args(LogLevel),
    )
    log_content: bool = setting(False, "Log rendered prompts and raw answers, too, at the level `debug`.")
    explain: bool = setting(
        True,
        "Tell in the log, and to clients that ask, why a prompt was computed again and what a request waited "
        "for: places and figures, never text.",
    )
    inspect: int = setting(
        0,
        "Latest requests to keep in memory whole, with prompts and answers, for `greenroom inspect`; 0 keeps "
        "none.",
        low=0,
        high=10_000,
    )


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
    adapter_bytes: int = setting(
        2048 * MEGABYTE,
        "Memory for the LoRA adapters of each model, 16 at most; the least recently used leave first.",
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


@attrs.frozen(slots=False)
class Network:
    """Settings of addresses, connections and uploads."""

    host: str = setting(
        "localhost", "Address to listen on; `localhost` is 127.0.0.1 and, where there is IPv6, ::1."
    )
    port: int = setting(8000, "TCP port to listen on; 0 picks a free one.", low=0, high=65535)
    listen: tuple[str, ...] = setting(
        (), "Further addresses to listen on, as `HOST:PORT` or `unix:/PATH`; Ollama's port is 11434."
    )
    tls_certificate: str | None = setting(
        None, "File with a certificate chain (PEM), for https; SIGHUP reads it again."
    )
    tls_key: str | None = setting(None, "File with the certificate's key, if it is not in the same file.")
    api_key: str | None = setting(
        None,
        "API key that every request needs, with an operator's rights; its variable is "
        "GREENROOM_SERVER_API_KEY, and as a flag, `ps` shows it to everybody.",
        secret=True,
    )
    api_key_file: str | None = setting(None, "File with such a key.")
    open_loopback: bool = setting(
        False, "Let programs of this machine in without a key, except to operators' routes."
    )
    insecure: bool = setting(
        False, "Listen on other addresses than this machine's own although no key is needed."
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), "Host names that requests may use, besides this machine's own."
    )
    allowed_origins: tuple[str, ...] = setting((), "Web origins whose pages may call the server.")
    max_connections: int = setting(
        1024, "Connections open at once, if the process may have enough descriptors.", low=1
    )
    request_timeout: tuple[str, ...] = setting(
        (), "Longest time of a request, as `SECONDS` for all or `PATH=SECONDS` for one route."
    )
    idle_connection: float = setting(60.0, "Seconds after which an idle connection is closed.", above=0)
    max_body_bytes: int | None = setting(
        None, "Largest request body, in bytes (default: 80 MB with images or other files, else 32 MB).", low=1
    )
    max_upload_bytes: int = setting(
        512 * MEGABYTE, "Largest file of a form, in bytes; it is kept on disk.", low=1
    )
    shutdown_timeout: float = setting(30.0, "Longest time of a shutdown, in seconds.", low=0, high=86400)


Parallelism = Literal["pipeline", "tensor"]
Wakefulness = Literal["auto", "on", "off"]
"""The choice to keep the machine awake while requests run; `auto` means on a Mac."""


@attrs.frozen(slots=False)
class ServedModels:
    """Settings of the served models."""

    models: tuple[str, ...] = setting(
        (), "Hub ids or local folders of the models to serve; the first is also called `default`."
    )
    model_dir: tuple[str, ...] = setting(
        (), "Folders with models' folders, as `NAME` or `OWNER/NAME`; all complete models in them are served."
    )
    default: tuple[str, ...] = setting(
        (), "Models that `default` means: the first that can be loaded (default: the first model)."
    )
    allow_downloads: bool = setting(
        False,
        "Download models that requests name by hub id; two at a time, and never with `trust_remote_code`.",
    )
    max_context: int | None = setting(
        None, "Longest context of every model, in tokens (default: the model's own).", low=16
    )
    max_loaded_models: int | None = setting(None, "Models kept loaded at once (default: any number).", low=1)
    tool_injection: bool = setting(
        True, "Describe tools in the prompt if a model's template cannot; when off, such requests are a 400."
    )
    system_prompt: str | None = setting(
        None, "File with the system message of conversations that have none, in any protocol."
    )
    keep_awake: Wakefulness = setting(
        "auto",
        "Keep the machine awake while requests run and 30 s longer, with `caffeinate` or `systemd-inhibit`; "
        "`auto` does so on a Mac.",
        one_of=get_args(Wakefulness),
    )
    trust_remote_code: bool = setting(False, "Let a model's folder run its own Python code.")
    hosts: tuple[str, ...] = setting(
        (),
        "Machines of models with `ranks`, one for each rank: `SSH=ADDRESS`, `localhost`, or a JSON file in "
        "the format of `mlx.launch` (default: all ranks on this machine).",
    )
    parallelism: Parallelism = setting(
        "pipeline",
        "What each of `ranks` computes: some layers (`pipeline`), or its heads of every layer (`tensor`).",
        one_of=get_args(Parallelism),
    )


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


@attrs.frozen(slots=False)
class Storage:
    """Settings of stored responses."""

    db: str | None = setting(
        None,
        "Database file of responses and conversations, or `:memory:` (default: `greenroom.db` in the user's "
        "data folder).",
    )
    store_responses: bool = setting(
        True, "Store responses, conversations and completions if clients request it."
    )
    store_retention_days: float = setting(
        30.0, "Days after which unused stored data is deleted; inf keeps it.", above=0
    )
    store_max_bytes: int | None = setting(
        None, "Largest database, in bytes; storing more is a 507 (default: no limit).", low=1
    )
