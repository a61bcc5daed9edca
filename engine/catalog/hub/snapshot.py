"""Folders of a repository in the hub's cache: blobs, an outline before the fetch, and the snapshot after it.

Greenroom makes the links itself, in the hub library's layout: the library would ask the hub again for every
file, could not be cancelled, and takes small files unchecked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from greenroom.engine.catalog.hub.hub_cache import TOKENIZERS, model_folder
from greenroom.engine.catalog.hub.repository import RemoteFile, Repository
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG, READ_ADAPTERS, other_weights
from greenroom.engine.catalog.model_files import limit_of, read_optional
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.problems import Problem, ProblemError, load_failed

_LAST = ("config.json", ADAPTER_CONFIG)
"""Files of which a snapshot without any counts as incomplete; they are linked last."""


class SnapshotFolder:
    """The folders of a repository in the hub's cache. Methods block."""

    def __init__(self, repository: Repository, cache: Path) -> None:
        self._repository = repository
        self._root = model_folder(repository.hub_id, cache)
        self._blobs = self._root / "blobs"
        self.folder = self._root / "snapshots" / repository.commit
        self.outline = cache / ".greenroom" / self._root.name

    def blob(self, file: RemoteFile) -> Path:
        return self._blobs / file.digest

    def has(self, file: RemoteFile) -> bool:
        """Return whether a file's whole content is in the cache."""
        try:
            return self.blob(file).stat().st_size == file.size
        except OSError:
            return False

    def missing_bytes(self, files: Iterable[RemoteFile]) -> int:
        """Return the bytes of files that are still missing; bytes that parts hold are not missing."""
        missing = {file.digest: file for file in files if not self.has(file)}
        return sum(max(0, file.size - self.part_bytes(file)) for file in missing.values())

    def part_bytes(self, file: RemoteFile) -> int:
        """Return the bytes of a file that are there, in a part or as a whole."""
        if self.has(file):
            return file.size
        try:
            return self.blob(file).with_name(file.digest + SUFFIX).stat().st_size
        except OSError:
            return 0

    def draw_outline(self, metadata: Iterable[RemoteFile]) -> None:
        """Make the folder by which the model's kind is detected: metadata, and empty files for the others.
        Raises OSError: the disk refuses, or one name is a file and a folder.
        """
        self.erase_outline()
        known = {file.path for file in metadata}
        for file in self._repository.files:
            place = self.outline / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.path in known:
                _link(self.blob(file), place)
            else:
                place.touch()

    def erase_outline(self) -> None:
        shutil.rmtree(self.outline, ignore_errors=True)

    def erase_unlinked(self) -> None:
        """Delete all folders of a repository that has no snapshot, such as one that was refused."""
        if not (self._root / "snapshots").exists():
            shutil.rmtree(self._root, ignore_errors=True)

    def drop_stale_parts(self) -> None:
        """Delete the parts of files that the hub has changed or removed."""
        listed = {file.digest for file in self._repository.files}
        for part in self._blobs.glob(f"*{SUFFIX}"):
            if part.name.removesuffix(SUFFIX) not in listed:
                part.unlink(missing_ok=True)

    def link(self, files: Iterable[RemoteFile]) -> Path:
        """Link the files into the snapshot, and point the revision to it; return the snapshot's folder.
        Raises OSError: the disk refuses.
        """
        for file in sorted(files, key=lambda file: file.path in _LAST):
            place = self.folder / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(self.blob(file), place)
        if self._repository.revision != self._repository.commit:
            reference = self._root / "refs" / self._repository.revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            new = reference.with_name(f".{reference.name}.{os.getpid()}")
            new.write_text(self._repository.commit)
            os.replace(new, reference)
        return self.folder


def _link(blob: Path, place: Path) -> None:
    """Put a file's content into a snapshot: by a relative link, or a copy where there are no links."""
    new = place.with_name(f".{place.name[:200]}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        new.symlink_to(os.path.relpath(blob, place.parent))
    except OSError:
        with contextlib.suppress(OSError):
            os.link(blob, new)
        if not new.exists():
            shutil.copyfile(blob, new)
    os.replace(new, place)


SUFFIX = ".greenroom.part"
_PIECE = 4 << 20


class PartFile:
    """The part of a file that has arrived, with its hash so far. Methods block; one thread at a time.

    A part is named by the hash of the whole file, so a part of an older version is never continued.

    Attributes:
        have: Number of bytes that have arrived.
        resumed: True if some of them came from an earlier run.
    """

    def __init__(self, file: RemoteFile, blob: Path) -> None:
        self.file = file
        self.blob = blob
        self.path = blob.with_name(blob.name + SUFFIX)
        self.have = 0
        self.resumed = False
        self._hash = _new_hash(file)
        self._descriptor: int | None = None

    @property
    def is_whole(self) -> bool:
        """True if all bytes have arrived, right or wrong."""
        return self.have == self.file.size

    def open(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Open the part, or begin one, and hash what is there. `checkpoint`: function that is called between
        pieces; it may raise, to end the reading. Raises OSError: the disk refuses.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o644)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(self.path))
        if os.fstat(self._descriptor).st_size > self.file.size:
            self.restart()
        while piece := os.read(self._descriptor, _PIECE):
            checkpoint()
            self._hash.update(piece)
            self.have += len(piece)
        self.resumed = self.have > 0

    def append(self, data: bytes | bytearray) -> None:
        """Add arrived bytes. Raises OSError: the disk refuses; what was written before stays."""
        assert self._descriptor is not None
        written = 0
        while written < len(data):
            # Copied, since a view that an error keeps alive would hold the caller's buffer.
            piece = bytes(data[written:])
            taken = os.write(self._descriptor, piece)
            self._hash.update(piece[:taken])
            self.have += taken
            written += taken

    def restart(self) -> None:
        """Drop what has arrived, and begin anew."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hash = _new_hash(self.file)
        self.have, self.resumed = 0, False

    def finish(self) -> bool:
        """Make the whole file a blob if its hash is right; return whether it is. Raises OSError: the disk
        refuses.
        """
        assert self._descriptor is not None
        if self._hash.hexdigest() != self.file.digest:
            return False
        os.fsync(self._descriptor)
        os.replace(self.path, self.blob)
        return True

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the part, which stays for the next run."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _new_hash(file: RemoteFile) -> hashlib._Hash:
    if len(file.digest) == 64:
        return hashlib.sha256()
    # A blob's name in git. Source: gitformat-pack(5), "Object types"; the hub lists it for small files.
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class RepositoryLock:
    """The lock on one repository, which a process that dies releases. No method waits for another process.

    A second file, which only a deletion locks, tells the others why they do not get the first.
    """

    def __init__(self, hub_id: str, cache: Path) -> None:
        self._hub_id = hub_id
        folder = cache / ".locks" / model_folder(hub_id, cache).name
        self._owned, self._deleting = folder / "greenroom.lock", folder / "greenroom.deleting"
        self._descriptors: list[int] = []

    def try_to_fetch(self) -> bool:
        """Take the lock for a fetch; return False while another fetch has it. Raises ProblemError (409): the
        model is being deleted. Raises OSError: the file of the lock cannot be made.
        """
        if self._take(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return True
        if self._is_deleting():
            raise ProblemError(being_deleted(self._hub_id))
        return False

    def delete(self) -> None:
        """Take the lock for a deletion. Raises ProblemError (409): the model is being fetched, or deleted
        already. Raises OSError: the file of the lock cannot be made.
        """
        if not self._take(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB):
            problem = being_deleted if self._is_deleting() else being_fetched
            raise ProblemError(problem(self._hub_id))
        self._take(self._deleting, fcntl.LOCK_EX)  # waits for those that look at it, which never hold it

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> RepositoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_deleting(self) -> bool:
        if not self._take(self._deleting, fcntl.LOCK_SH | fcntl.LOCK_NB):
            return True
        os.close(self._descriptors.pop())
        return False

    def _take(self, path: Path, how: int) -> bool:
        """Return whether a file is locked now; a file system without locks counts as free."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
        except OSError as error:
            if error.errno in _HELD:
                os.close(descriptor)
                return False
        self._descriptors.append(descriptor)
        return True


def being_fetched(model: str) -> Problem:
    detail = f"'{model[:200]}' is being fetched: cancel that first, or wait for its end."
    return Problem(409, "model_in_use", detail, "model")


def being_deleted(model: str) -> Problem:
    """Return the problem of a fetch, or another deletion, during a deletion."""
    detail = f"'{model[:200]}' is being deleted: try again when that has ended."
    return Problem(409, "model_in_use", detail, "model", retry_after=1)


_METADATA = ("*.json", "tokenizer.model", "*.tiktoken", "tiktoken.model", "*.txt", "*.jsonl", "*.jinja")
"""File patterns of a model's metadata, except Python code; weight patterns depend on its type."""

_WEIGHTS = ("model*.safetensors",)
_ALL_WEIGHTS = ("*.safetensors", "*.npz", "*.model", "*.yaml")
"""Weight patterns of audio models, which have no naming rules and keep voices in subfolders."""
_WEIGHTS_BY_KIND: Mapping[ModelType, tuple[str, ...]] = {
    "embeddings": (*_WEIGHTS, "*_Dense/model.safetensors", "*_LayerNorm/model.safetensors"),
    "speech": _ALL_WEIGHTS,
    "transcription": _ALL_WEIGHTS,
}


def metadata_files(repository: Repository, trust_remote_code: bool = False) -> tuple[RemoteFile, ...]:
    """Return the files that tell what a model is, without weights.

    Files of a size that no library may read are left out.
    """
    patterns: tuple[str, ...] = (*_METADATA, "*.py") if trust_remote_code else _METADATA
    found = _matching(repository.files, (ADAPTER_CONFIG,) if _is_adapter(repository) else patterns)
    return tuple(
        file for file in found if (limit := limit_of(Path(file.path).name)) is None or file.size <= limit
    )


def weight_files(
    repository: Repository, outline: Path, trust_remote_code: bool = False
) -> tuple[RemoteFile, ...]:
    """Return the weight files that a model needs.

    Args:
        outline: Folder with the model's metadata, and an empty file in place of each other file.

    Raises:
        ProblemError: 503 `load_failed`: the repository holds no usable model; the detail says why.
    """
    name = repository.hub_id
    if _is_adapter(repository):
        return _adapter_files(repository, outline)
    kind = detect(outline, trust_remote_code, name).model_type
    files = _matching(repository.files, _WEIGHTS_BY_KIND.get(kind, _WEIGHTS))
    if kind not in ("speech", "transcription"):
        _check_text_model(repository, outline, files)
    elif not any(file.path.endswith((".safetensors", ".npz")) for file in files):
        raise _unusable(name, f"there are no weights in it{other_weights(outline)}")
    return files


def _is_adapter(repository: Repository) -> bool:
    names = {file.path for file in repository.files}
    return "config.json" not in names and ADAPTER_CONFIG in names


def _adapter_files(repository: Repository, outline: Path) -> tuple[RemoteFile, ...]:
    files = tuple(file for file in repository.files if file.path in READ_ADAPTERS)
    if not files:
        raise _unusable(repository.hub_id, f"there is none of {', '.join(READ_ADAPTERS)} in it")
    if not read_optional(outline / ADAPTER_CONFIG):
        raise _unusable(repository.hub_id, f"its {ADAPTER_CONFIG} is unusable")
    return files


def _check_text_model(repository: Repository, outline: Path, files: Sequence[RemoteFile]) -> None:
    """Check what a model with a tokenizer must have to count as complete. Raises ProblemError: 503
    `load_failed`.
    """
    name, names = repository.hub_id, {file.path for file in repository.files}
    if not files:
        raise _unusable(name, f"there are no weights (model*.safetensors) in it{other_weights(outline)}")
    if names.isdisjoint(TOKENIZERS):
        raise _unusable(name, "there is no tokenizer in it")
    shards = read_optional(outline / "model.safetensors.index.json").get("weight_map")
    if isinstance(shards, dict):
        missing = sorted({str(shard) for shard in shards.values()} - names)
        if missing:
            raise _unusable(name, f"it lacks '{missing[0][:80]}', which its index of weights names")


def _unusable(name: str, why: str) -> ProblemError:
    return ProblemError(load_failed(name, f"{why}.", lasting=True))


def _matching(files: Sequence[RemoteFile], patterns: Sequence[str]) -> tuple[RemoteFile, ...]:
    """Return the files whose paths match a pattern, where `*` also stands for slashes."""
    return tuple(
        file
        for file in files
        if not _is_hidden(file.path) and any(fnmatch.fnmatchcase(file.path, each) for each in patterns)
    )


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
