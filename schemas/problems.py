"""Errors as values: one problem document for every protocol (RFC 9457)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

MAX_DETAIL = 1_000
"""Maximum length of a detail in characters, so that a quoted client value is not returned whole."""
MAX_PARAM = 200
"""Maximum length of a field path in characters; clients choose the names in it."""


def _shorten_detail(text: str) -> str:
    return text if len(text) <= MAX_DETAIL else f"{text[: MAX_DETAIL - 1]}…"


def _shorten_param(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_PARAM else f"{text[: MAX_PARAM - 1]}…"


@attrs.frozen
class Problem:
    """An error that is reported to a client.

    Args:
        status: Corresponding HTTP status (400, 404, 413, 501, 503, 504, 507, 500).
        code: Stable machine-readable name, e.g. `model_not_found`, `context_length_exceeded`.
        detail: Sentence for people that states the error and a remedy.
        param: Path of the offending field (`messages[2].content`), if there is one.
        retry_after: Seconds after which a retry may succeed.
        members: Names and values of further members of the document, such as bytes required and available.
        lasting: True if a model's files are to blame, so that it fails again until they change.
    """

    status: int
    code: str
    detail: str = attrs.field(converter=_shorten_detail)
    param: str | None = attrs.field(default=None, converter=_shorten_param)
    retry_after: int | None = None
    members: tuple[tuple[str, int], ...] = ()
    lasting: bool = False


class ProblemError(Exception):
    """An exception that carries a problem through synchronous code to where it is reported as a value."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class NoRoomError(ProblemError):
    """An error for weights that do not fit beside the other models at present.

    Args:
        required: Bytes that the weights need.
        available: Bytes that are left.
    """

    def __init__(self, model: str, required: int, available: int) -> None:
        super().__init__(insufficient_memory(model, required, available))
        self.required = required
        self.available = available


def invalid(detail: str, param: str | None = None, code: str = "invalid_value") -> ProblemError:
    """Return the 400 for a request with an invalid value."""
    return ProblemError(Problem(400, code, detail, param))


def missing(param: str) -> ProblemError:
    """Return the 400 for a required field that is missing."""
    return invalid(f"`{param}` is required.", param, "missing_required_parameter")


def not_fetched(param: str | None) -> ProblemError:
    detail = (
        f"`{param or 'url'}` is an address, but this server fetches no files: send the file itself, as a "
        'data URL or base64, or set `[images] fetch = "https"` in its settings.'
    )
    return invalid(detail, param, "unsupported_content")


_NAMED_AT_MOST = 8  # Maximum number of models that a 404 lists
_LONGEST_ALIAS = 60  # Maximum length, in characters, of an unknown name that a 404 suggests as an alias


def may_not_download(model: str) -> Problem:
    """Return the 404 for a model that is not here, and that the caller's key may not bring."""
    detail = f"The model '{model}' is not here, and this API key may not download it."
    return Problem(404, "model_not_found", detail, "model")


def model_not_found(model: str, near: Sequence[str] = (), known: Sequence[str] = ()) -> Problem:
    """Return the 404 for an unknown model name.

    Args:
        near: Most similar existing names.
        known: Existing models, the default one first; clients often send names from other servers.
    """
    detail = f"The model '{model}' does not exist here."
    if near:
        detail += f" Did you mean {', '.join(near)}?"
    if known:
        more = f" and {len(known) - _NAMED_AT_MOST} more" if len(known) > _NAMED_AT_MOST else ""
        detail += f" There are: {', '.join(known[:_NAMED_AT_MOST])}{more}; `default` means the first."
        if len(model) <= _LONGEST_ALIAS and model.isprintable() and '"' not in model:
            which, owner = ("it", "default") if len(known) == 1 else ("one", '"ID"')
            alias = f'`model.{owner}.alias = ["{model}"]`'
            detail += f" To serve {which} under this name, put {alias} in the settings."
    return Problem(404, "model_not_found", detail, "model")


def not_here(model: str) -> Problem:
    """Return the 404 for a question about a model that a request may download."""
    detail = f"The model '{model[:200]}' is not on this machine. A request to it downloads it first."
    return Problem(404, "model_not_found", detail, "model")


def adapter_not_found(adapter: str, model: str) -> Problem:
    detail = f"The model '{model}' has no adapter '{adapter}' here. Leave it out to use the model alone."
    return Problem(404, "adapter_not_found", detail, "adapter")


def context_length_exceeded(prompt_tokens: int, context: int) -> Problem:
    """Return the 400 for a prompt that exceeds the context, in the wording that editors and agents detect."""
    detail = (
        f"This model's maximum context length is {context} tokens. However, your messages "
        f"resulted in {prompt_tokens} tokens. Please reduce the length of the messages: prompt is too long: "
        f"{prompt_tokens} tokens > {context} maximum."
    )
    return Problem(400, "context_length_exceeded", detail, "messages")


def load_failed(model: str, detail: str, *, lasting: bool = False) -> Problem:
    """Return the problem of a model whose files cannot be loaded.

    Args:
        lasting: True if the files are to blame, rather than the device, the network or the time.
    """
    detail = f"The model '{model}' could not be loaded: {detail}"
    return Problem(503, "load_failed", detail, retry_after=30, lasting=lasting)


def unknown_to_hub(failed: Problem) -> Problem:
    """Return the 404 for a failed load of a model that the hub does not have."""
    return Problem(404, "model_not_found", failed.detail, "model")


def load_crashed(model: str, error: BaseException) -> Problem:
    name = type(error).__name__
    return load_failed(model, (str(error) or name) if isinstance(error, Exception) else f"{name}: {error}")


def insufficient_memory(model: str, required: int, available: int, freed: int = 0) -> Problem:
    """Return the problem of a model that does not fit into memory.

    Args:
        required: Bytes that it needs.
        available: Bytes that it could have.
        freed: Bytes of other models that were unloaded for it.
    """
    detail = (
        f"The model '{model}' needs {_megabytes(required)} of memory; it can have {_megabytes(available)} "
        "(setting memory_bytes). A text model can be spread over several machines (settings ranks and hosts)."
    )
    if freed:
        detail += f" {_megabytes(freed)} of other models were unloaded for it."
    return Problem(507, "insufficient_memory", detail, members=memory_members(required, available, freed))


def memory_in_use(model: str, required: int, available: int, freed: int, seconds: float) -> Problem:
    """Return the problem of a load that waited `seconds` in vain for memory used by other programs."""
    detail = (
        f"The model '{model}' needs {_megabytes(required)} of memory; other programs left "
        f"{_megabytes(available)} for {seconds:g} seconds."
    )
    members = memory_members(required, available, freed)
    return Problem(503, "memory_in_use", detail, retry_after=30, members=members)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MB" if nbytes >= 10 << 20 else f"{nbytes / (1 << 20):,.1f} MB"


def memory_members(required: int, available: int, freed: int = 0) -> tuple[tuple[str, int], ...]:
    return ("required_bytes", required), ("available_bytes", available), ("freed_bytes", freed)


def model_crashed(model: str) -> Problem:
    """Return the problem of a worker that crashed; the next request loads the model again."""
    detail = f"The model '{model}' failed while it was generating and is loaded again on the next request."
    return Problem(500, "model_crashed", detail)


def rank_lost(model: str, what: str) -> Problem:
    """Return the problem of requests whose model has lost one of its processes. `what`: sentence about it."""
    detail = f"{what}. All ranks of {model!r} were ended; the next request starts them again."
    return attrs.evolve(model_crashed(model), detail=detail)


def model_broken(what: str, param: str | None = None) -> Problem:
    """Return the problem of a model that computed NaN or infinity for `what`."""
    detail = (
        f"What the model computed for {what} is no number (NaN or infinity): its weights are broken, or its "
        "number format is too coarse (setting dtype)."
    )
    return Problem(503, "model_broken", detail, param)


def model_hung(model: str, seconds: float | None = None) -> Problem:
    """Return the problem of a worker that is slow or hangs, and cannot be ended.

    Args:
        seconds: Seconds without a sign of life; None if unknown.
    """
    time = "" if seconds is None else f" for {seconds:g} s"
    detail = (
        f"The model '{model}' has given no sign of life{time}: a step (of speech: a sentence) takes longer "
        "than that on this device, or never ends. The model is used again once it ends."
    )
    return Problem(503, "model_hung", detail, retry_after=30)


def model_pinned(model: str) -> Problem:
    detail = f"The model '{model}' is pinned by the operator's settings, so requests do not unload it."
    return Problem(409, "model_pinned", detail, "model")


def model_in_use(model: str) -> Problem:
    """Return the problem of a client's request to unload a model that others use, or want to stay."""
    detail = f"Others use the model '{model}', so this request does not unload it."
    return Problem(409, "model_in_use", detail, "model")


def no_room(model: str, hung: tuple[str, ...]) -> Problem:
    """Return the problem of a model that cannot be loaded because hung models occupy the memory.

    Args:
        hung: Those that the client may know of.
    """
    names = ", ".join(map(repr, hung)) or "others"
    detail = (
        f"The model '{model}' cannot be loaded: its memory is held by {names}, which "
        "give no sign of life. It can be once their steps end."
    )
    return Problem(503, "no_room", detail, retry_after=30)


def tokenizer_hung(model: str, seconds: float) -> Problem:
    detail = (
        f"Preparing the prompt for '{model}' (template, tokens, grammar) was given up: there was no sign of "
        f"life for {seconds:g} seconds."
    )
    return Problem(500, "prompt_hung", detail)


def tokenizer_crashed(model: str, reason: str) -> Problem:
    """Return the problem of a prompt that made a library panic, the tokenizer's or the grammar's."""
    detail = (
        f"Preparing the prompt for '{model}' (template, tokens, grammar) crashed its tokenizer thread, which "
        f"another replaces: {reason[:200]}"
    )
    return Problem(503, "tokenizer_crashed", detail)


def tokenizers_hung(model: str, threads: int) -> Problem:
    detail = (
        f"The model '{model}' can prepare no more prompts: {threads} of its threads hang. It does "
        "again once one of them returns."
    )
    return Problem(503, "model_hung", detail, retry_after=30)


def lookup_hung(seconds: float) -> Problem:
    detail = f"Looking for the model took longer than {seconds:g} seconds; the disk may not respond."
    return Problem(503, "lookup_hung", detail, retry_after=30)


def draining() -> Problem:
    return Problem(503, "draining", "The server is shutting down: ask again once it is back.", retry_after=5)


def device_lost(why: str) -> Problem:
    detail = f"The server ends and has to be started again: the device is lost, {why}."
    return Problem(503, "device_lost", detail, retry_after=10)


def too_many_connections() -> Problem:
    detail = "Too many connections are open; try again shortly."
    return Problem(503, "too_many_connections", detail, retry_after=1)


def queue_full(model: str, waiting: int, retry_after: int) -> Problem:
    detail = f"{waiting} requests are already waiting for '{model}'."
    return Problem(503, "queue_full", detail, retry_after=retry_after)


def queue_timeout(model: str, seconds: float, retry_after: int) -> Problem:
    detail = f"The request waited for '{model}' longer than {seconds:g} seconds (setting queue_timeout)."
    return Problem(503, "queue_timeout", detail, retry_after=retry_after)


def internal_error() -> Problem:
    """Return the problem of an internal error; the log has its traceback."""
    return Problem(500, "internal_error", "The server met an unexpected error; its log says more.")


def conversation_in_use(conversation: str) -> Problem:
    detail = (
        f"Another response is being generated in the conversation '{conversation}'; wait until it has ended."
    )
    return Problem(409, "conversation_in_use", detail, "conversation", retry_after=1)
