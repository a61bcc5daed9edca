"""Reasons of failed downloads, as sentences for the operator."""

from __future__ import annotations

import errno

_LONGEST_REASON = 400
"""Characters of a reason that the hub or a library has worded."""


def describe_failure(error: Exception, source: str) -> str:
    """Return the reason of a failed download, as a clause without a full stop.

    Args:
        error: Exception that huggingface_hub raised.
        source: Address of the hub.
    """
    import httpx2
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    match error:
        case GatedRepoError():
            return describe_refusal(403, source)
        case RepositoryNotFoundError():
            return describe_refusal(401, source)
        case RevisionNotFoundError():
            return f"{source} has no such revision of it"
        case OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE forbids it"
        case HfHubHTTPError() if error.response.status_code in (401, 403):
            return describe_refusal(error.response.status_code, source)
        case httpx2.TransportError():
            return f"{source} cannot be reached ({_first_line(error)})"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG):
            return f"the disk takes no more ({error.strerror}); what has arrived is kept for the next try"
    return _first_line(error)


def is_unknown(error: Exception) -> bool:
    """Return whether a download failed because the hub shows no model of that name."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    return isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError)


def describe_refusal(status: int, source: str) -> str:
    """Return the reason of a download that the hub does not allow, as a clause without a full stop.

    Args:
        status: 401 or 403.
        source: Address of the hub.
    """
    if status == 403:
        return f"its terms have to be accepted at {source}, and HF_TOKEN must be a token of who did"
    return f"{source} has no model of that name, or it is private and HF_TOKEN does not open it"


def _first_line(error: BaseException) -> str:
    # A hub's own words could be of any length, and hold orders to the operator's terminal.
    line = str(error).strip().partition("\n")[0][:_LONGEST_REASON]
    return "".join(letter if letter.isprintable() else "?" for letter in line) or type(error).__name__
