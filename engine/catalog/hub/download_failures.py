"""Reasons of failed downloads, as sentences for the operator."""

from __future__ import annotations


def describe_failure(error: Exception, source: str) -> str:
    """Return the reason of a failed download, as a clause without a full stop.

    Args:
        error: Exception that huggingface_hub raised.
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


def is_unknown(error: Exception) -> bool:
    """Return whether a download failed because the hub shows no model of that name."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    return isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
