"""Why a download failed, in a sentence for whoever wanted it."""

from __future__ import annotations


def describe_failure(error: Exception, source: str) -> str:
    """Return why nothing came.

    Args:
        error: What huggingface_hub has raised, or what it passed on.
        source: Address of the hub.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    match error:
        case GatedRepoError():
            return f"its terms have to be accepted at {source}, and HF_TOKEN must be a token of who did"
        case RepositoryNotFoundError():
            return f"{source} has no model of that name, or it is private and HF_TOKEN does not open it"
        case LocalEntryNotFoundError():
            cause = error.__cause__
            if isinstance(cause, OfflineModeIsEnabled):
                return "HF_HUB_OFFLINE forbids it"
            return f"{source} cannot be reached ({_first_line(cause or error)})"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
