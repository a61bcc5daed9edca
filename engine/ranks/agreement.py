"""Agreement of all ranks on plan, libraries and files, before any of them loads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

LIBRARIES = ("greenroom", "mlx", "mlx-lm")
"""Libraries whose versions must be equal on all hosts."""
_SAMPLES, _SAMPLE_BYTES = 16, 4_096


class Agreement(msgspec.Struct, frozen=True):
    """The state of one rank's host.

    Args:
        plan: The model, its split and its settings, as canonical JSON.
        versions: Versions by library.
        files: Identities of files by name (`file_identity`).
    """

    plan: str
    versions: dict[str, str]
    files: dict[str, str]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def agreement_of(plan: Mapping[str, object], folder: Path, names: Iterable[str]) -> Agreement:
    """Return the agreement that this machine can offer. `names`: files that count; missing ones are told."""
    files = {name: file_identity(folder / name) for name in sorted({*names, "config.json"})}
    versions = {name: _version(name) for name in LIBRARIES}
    return Agreement(msgspec.json.encode(plan, order="sorted").decode(), versions, files)


def file_identity(path: Path) -> str:
    """Return the size of a file and a digest of its header and samples; `missing` if it cannot be read.

    Whole files are too large to hash at every load. The samples tell models of one shape apart; a changed
    byte between them goes unseen.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = 8 + int.from_bytes(file.read(8), "little") if path.suffix == ".safetensors" else size
            file.seek(0)
            digest.update(file.read(min(header, size, 100_000_000)))
            for number in range(_SAMPLES):
                file.seek(header + max(0, size - header - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    except OSError:
        return "missing"
    return f"{size} bytes, sha256 {digest.hexdigest()[:16]}"


def check_agreement(first: Agreement, own: Agreement, host: str) -> None:
    """Refuse to load a rank whose host differs from that of rank 0.

    Args:
        first: Agreement that rank 0 sent.
        own: Agreement of this rank, with the files that it reads.
        host: Name of this rank's host, for the error.

    Raises:
        ValueError: One sentence that names the host and all differences.
    """
    pairs = [
        (name, first.versions.get(name, "unknown"), own.versions.get(name, "unknown")) for name in LIBRARIES
    ]
    pairs += [(name, first.files.get(name, "missing"), found) for name, found in own.files.items()]
    differ = [
        f"{name} is {theirs} there and {ours} on rank 0" for name, ours, theirs in pairs if ours != theirs
    ]
    if first.plan != own.plan:
        differ.append("it was started with another plan")
    if differ:
        raise ValueError(f"host {host} differs from rank 0: {'; '.join(differ)}")
