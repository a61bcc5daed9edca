"""A model's repository on the hub: its files at one commit, with sizes and hashes, as the hub lists them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from greenroom.engine.catalog.hub.hub_cache import HUB_ID, find_cached_model, hub_cache_folder
from greenroom.schemas.problems import Problem, ProblemError, unknown_to_hub
from greenroom.schemas.protocols.download_protocol import FoundModel

LISTING_SECONDS = 60.0  # Longest wait for the hub's list of files
_HUB = "https://huggingface.co"
_MOST_FILES = 5_000
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")
_REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")


@attrs.frozen
class RemoteFile:
    """A file of a repository.

    Args:
        path: Path within the repository, with slashes; it cannot leave a folder.
        size: Size in bytes.
        digest: SHA-256 of a large file (64 hexadecimal digits), or git's SHA-1 of a small one (40 digits).
            The hub's cache names blobs by it.
    """

    path: str
    size: int
    digest: str


@attrs.frozen
class Repository:
    """A model's repository at one commit. `revision`: branch, tag or commit that was asked for."""

    hub_id: str
    revision: str
    commit: str
    source: str
    files: tuple[RemoteFile, ...]

    def url(self, file: RemoteFile) -> str:
        from urllib.parse import quote

        return f"{self.source}/{self.hub_id}/resolve/{self.commit}/{quote(file.path)}"


def hub_address() -> str:
    """Return the address of the hub, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")


def hub_token() -> str | None:
    """Return the user's token for the hub, as huggingface_hub finds it; None if there is none."""
    from huggingface_hub import get_token

    token: str | None = get_token()
    return token


def split_name(name: str) -> tuple[str, str]:
    """Return the hub id and the revision of `OWNER/NAME` or `OWNER/NAME@REVISION`.

    Raises:
        ProblemError: 400.
    """
    hub_id, at, revision = name.partition("@")
    if not HUB_ID.fullmatch(hub_id):
        detail = f"'{name[:200]}' is no model of a hub: name one as OWNER/NAME or OWNER/NAME@REVISION."
        raise ProblemError(Problem(400, "invalid_value", detail, "model"))
    if at and not _REVISION.fullmatch(revision):
        detail = f"'{revision[:200]}' is no revision: name a branch, a tag or a commit."
        raise ProblemError(Problem(400, "invalid_value", detail, "model"))
    return hub_id, revision or "main"


def read_repository(hub_id: str, revision: str = "main") -> Repository:
    """Return a repository as the hub lists it now; blocks. Raises ProblemError (404 `model_not_found`) if the
    hub has no such model; 503 `load_failed` if it does not answer, or lists files that no snapshot can hold.
    """
    from huggingface_hub import HfApi

    from greenroom.engine.catalog.hub.hub_session import bounded_session

    source = hub_address()
    try:
        with bounded_session(LISTING_SECONDS, source):
            hub = HfApi(endpoint=source)
            commit = str(hub.model_info(hub_id, revision=revision).sha)
            entries = hub.list_repo_tree(hub_id, revision=commit, recursive=True)
            files = _files(entries)
    except Exception as error:  # the library passes on any error of its HTTP client
        failed = download_failed(hub_id, describe_failure(error, source))
        raise ProblemError(unknown_to_hub(failed) if is_unknown(error) else failed) from error
    if not _COMMIT.fullmatch(commit):
        raise ProblemError(download_failed(hub_id, f"{source} names no commit of it"))
    return Repository(hub_id, revision, commit, source, files)


def download_failed(hub_id: str, reason: str) -> Problem:
    """Return the problem of a download that failed. `reason`: a clause without a full stop."""
    detail = f"The model '{hub_id}' could not be downloaded: {reason}"
    return Problem(503, "load_failed", detail, retry_after=30)


def _files(entries: Iterable[Any]) -> tuple[RemoteFile, ...]:
    """Return the files among a tree's entries. Raises ValueError: A name leaves the snapshot, a hash is none,
    or there are too many files.
    """
    files: dict[str, RemoteFile] = {}
    for entry in entries:
        digest = getattr(entry, "blob_id", None)
        if digest is None:
            continue  # a folder
        large = entry.lfs
        digest, size = (large.sha256, large.size) if large is not None else (digest, entry.size)
        if type(size) is not int or size < 0 or not isinstance(digest, str):
            raise ValueError(f"it lists '{_shown(entry.path)}' without a size or a hash")
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"it lists '{_shown(entry.path)}' with an invalid hash")
        check_path(entry.path)
        files[entry.path] = RemoteFile(entry.path, size, digest)
        if len(files) > _MOST_FILES:
            raise ValueError(f"it has more than {_MOST_FILES:,} files")
    folders = set[str]()
    for path in files:
        inside = path
        while (inside := inside.rpartition("/")[0]) and inside not in folders:
            if inside in files:
                raise ValueError(f"'{_shown(inside)}' is both a file and a folder in it")
            folders.add(inside)
            if len(folders) > _MOST_FILES:
                raise ValueError(f"it has more than {_MOST_FILES:,} folders")
    return tuple(files.values())


def check_path(path: str) -> None:
    """Check that a file's name within a repository cannot leave the snapshot's folder. Raises ValueError: one
    clause.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") or not _PART.fullmatch(part) for part in parts) or len(path) > 1_000:
        raise ValueError(f"it has a file named '{_shown(path)}', which leaves its folder")


def _shown(path: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in str(path)[:80])


_LONGEST_REASON = 400  # Characters of a reason that the hub or a library has worded


def describe_failure(error: Exception, source: str) -> str:
    """Return the reason of a failed download, as a clause without a full stop."""
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
    """Return the reason of a download that the hub does not allow, as a clause without a full stop. `status`:
    401 or 403.
    """
    if status == 403:
        return f"its terms have to be accepted at {source}, and HF_TOKEN must be a token of who did"
    return f"{source} has no model of that name, or it is private and HF_TOKEN does not open it"


def _first_line(error: BaseException) -> str:
    # A hub's own words could be of any length, and hold orders to the operator's terminal.
    line = str(error).strip().partition("\n")[0][:_LONGEST_REASON]
    return "".join(letter if letter.isprintable() else "?" for letter in line) or type(error).__name__


SEARCH_SECONDS = 30.0  # Time limit of a search


def search_hub(words: str, limit: int) -> tuple[FoundModel, ...]:
    """Return the models of MLX's library whose ids match words, the most downloaded first; blocks. Raises
    ProblemError (503 `search_failed`).
    """
    from huggingface_hub.utils import get_session, hf_raise_for_status

    from greenroom.engine.catalog.hub.hub_session import bounded_session

    source = hub_address()
    asked = {"search": words, "filter": "mlx", "sort": "downloads", "limit": limit}
    try:
        with bounded_session(SEARCH_SECONDS, source):
            # Not by the library's own list: where nobody answers, it asks six times and prints each.
            answer = get_session().get(
                f"{source}/api/models",
                params={**asked, "expand": ["downloads", "likes", "gated"]},
                headers={"authorization": f"Bearer {token}"} if (token := hub_token()) else {},
            )
            hf_raise_for_status(answer)
            return tuple(_found(each) for each in answer.json()[:limit] if HUB_ID.fullmatch(each["id"]))
    except Exception as error:  # the library passes on any error of its HTTP client
        reason = describe_failure(error, source)
        detail = f"Searching the hub failed: {reason}"
        raise ProblemError(Problem(503, "search_failed", detail, retry_after=30)) from error


def _found(entry: Mapping[str, Any]) -> FoundModel:
    local = find_cached_model(entry["id"], hub_cache_folder()) is not None
    downloads, likes = int(entry.get("downloads") or 0), int(entry.get("likes") or 0)
    return FoundModel(entry["id"], downloads, likes, entry.get("gated") not in (None, False), local)
