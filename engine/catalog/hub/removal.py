"""Deletion of models from the hub's cache and the operator's folders of models, and from nowhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import attrs

from greenroom.engine.catalog.folders import AdapterEntry
from greenroom.engine.catalog.hub.hub_cache import HUB_ID, hub_cache_folder, model_folder
from greenroom.engine.catalog.hub.snapshot import RepositoryLock
from greenroom.schemas.problems import Problem, ProblemError


class ListedModel(Protocol):
    @property
    def id(self) -> str:
        """Its own id."""

    @property
    def folder(self) -> Path | None:
        """Folder of its files; None if there are none."""

    @property
    def adapter(self) -> AdapterEntry | None:
        """Adapter through whose name it was found, whose own files are meant; None for the model itself."""

    @property
    def profile(self) -> str | None:
        """Name of the profile through which it was found; None for the model itself."""


@attrs.frozen
class Removal:
    """A model that is to be deleted.

    Args:
        nbytes: Bytes of disk that it takes.
        revision: Branch, tag or commit of which alone the files are deleted; None for the whole model.
        cache: Cache of the hub that it lies in; None for a folder of models.
    """

    model: str
    folder: Path
    nbytes: int
    revision: str | None = None
    cache: Path | None = None

    def claim(self) -> AbstractContextManager[object]:
        """Keep all processes from fetching the model until the context ends. Raises ProblemError: 409 if one
        fetches or deletes it now, 503 if the disk refuses.
        """
        if self.cache is None:
            return nullcontext()
        lock = RepositoryLock(self.model, self.cache)
        try:
            lock.delete()
        except OSError as error:
            lock.close()
            raise self._refused(error) from error
        except ProblemError:
            lock.close()
            raise
        return lock

    def remove(self) -> int:
        """Delete the files, and return the bytes of disk that are free again. Raises ProblemError: 404 if
        there is no such revision, 403 if its files lie elsewhere, 503 if the disk refuses.
        """
        try:
            if self.revision is not None:
                return _remove_revision(self, self.revision)
            shutil.rmtree(self.folder)
        except OSError as error:
            raise self._refused(error) from error
        return self.nbytes

    def _refused(self, error: OSError) -> ProblemError:
        detail = f"'{self.model}' could not be deleted: {error.strerror} ({error.filename})."
        return ProblemError(Problem(503, "delete_failed", detail))


def plan_removal(
    model: str, folder: Path | None, model_dirs: Sequence[str], cache: Path | None = None
) -> Removal:
    """Return the files of a model that its deletion would delete.

    Args:
        model: Its own id, or `ID@REVISION` for a model of the cache.
        folder: Its folder by the catalog; None if the catalog does not list it.

    Raises:
        ProblemError: 404 if there is nothing to delete; 403 if it lies elsewhere.
    """
    cache = hub_cache_folder() if cache is None else cache
    hub_id, at, revision = model.partition("@")
    repository = model_folder(hub_id, cache)
    in_cache = folder is None or repository.resolve() in folder.resolve().parents
    if in_cache and HUB_ID.fullmatch(hub_id) and repository.is_dir():
        if repository.is_symlink():
            raise _elsewhere(model, repository)
        return Removal(hub_id, repository, _size(repository), revision if at else None, cache)
    if folder is None:
        detail = f"There are no files of a model '{model[:200]}' to delete."
        raise ProblemError(Problem(404, "model_not_found", detail, "model"))
    roots = [Path(root).expanduser().resolve() for root in model_dirs]
    whole = folder.resolve()
    if folder.is_symlink() or whole in roots or not any(root in whole.parents for root in roots):
        raise _elsewhere(model, folder)
    return Removal(model, whole, _size(whole))


def plan_listed_removal(name: str, found: ListedModel | Problem, model_dirs: Sequence[str]) -> Removal:
    """Return the files of a model that its deletion would delete, by what the catalog has found.

    Args:
        name: Its own id, or `ID@REVISION` for a model of the cache.

    Raises:
        ProblemError: 400 if it is another name of a model; see `plan_removal`.
    """
    entry = None if isinstance(found, Problem) or found.folder is None else found
    if entry is not None and entry.adapter is not None and entry.adapter.id == name:
        return plan_removal(name, entry.adapter.folder, model_dirs)
    if entry is not None and (entry.id != name.partition("@")[0] or entry.profile is not None):
        detail = f"'{name[:200]}' is another name of '{entry.id}': name the model itself to delete it."
        raise ProblemError(Problem(400, "invalid_value", detail, "model"))
    return plan_removal(name, None if entry is None else entry.folder, model_dirs)


def _remove_revision(removal: Removal, revision: str) -> int:
    from huggingface_hub import scan_cache_dir

    found = scan_cache_dir(removal.folder.parent)
    repository = next((each for each in found.repos if each.repo_path == removal.folder.resolve()), None)
    commits = {
        each.commit_hash
        for each in (repository.revisions if repository is not None else ())
        if revision in each.refs or (len(revision) >= 7 and each.commit_hash.startswith(revision))
    }
    if not commits:
        detail = f"There is no revision '{revision[:200]}' of '{removal.model}' in the hub's cache."
        raise ProblemError(Problem(404, "model_not_found", detail, "model"))
    deletion = found.delete_revisions(*commits)
    root = removal.folder.resolve()
    for path in (*deletion.blobs, *deletion.refs, *deletion.snapshots, *deletion.repos):
        # A link in a snapshot may lead anywhere, and the library follows it.
        if root != path.resolve() and root not in path.resolve().parents:
            raise _elsewhere(removal.model, path)
    deletion.execute()
    return int(deletion.expected_freed_size)


def _elsewhere(model: str, path: Path) -> ProblemError:
    detail = f"'{model[:200]}' is not deleted: {path} is outside of the hub's cache and of every --model-dir."
    return ProblemError(Problem(403, "not_deletable", detail, "model"))


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
            except OSError:
                continue
            total += status.st_blocks * 512
    return total
