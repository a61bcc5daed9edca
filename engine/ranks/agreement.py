"""Agreement of all ranks on plan, libraries and files, before any of them loads."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

LIBRARIES = ("greenroom", "mlx", "mlx-lm")
"""Libraries whose versions must be equal on all hosts."""
_SAMPLES, _SAMPLE_BYTES = 16, 4_096

Agreement = Mapping[str, str]
"""Values that must be equal on all hosts, by name: the plan's digest, versions and identities of files."""


def agreement_of(folder: Path, files: Iterable[str], plan: Any = None) -> Agreement:
    """Return this machine's values, of named files beside the configuration. `plan`: model, split and
    addresses, as JSON can hold them.
    """
    plan_digest = hashlib.sha256(msgspec.json.encode(plan, order="sorted")).hexdigest()[:16]
    found = {name: file_identity(folder / name) for name in sorted({*files, "config.json"})}
    return {"plan": plan_digest, **{name: _version(name) for name in LIBRARIES}, **found}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def file_identity(path: Path) -> str:
    """Return the size of a file and a digest of its header and samples, since whole files are too large to
    hash at every load; `missing` if it cannot be read. A changed byte between the samples goes unseen.
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
    """Raise ValueError, which names the host, if its values, `own`, differ from those of rank 0."""
    differ = [
        f"{name} is {found} there and {first.get(name, 'missing')} on rank 0"
        for name, found in own.items()
        if found != first.get(name)
    ]
    if differ:
        raise ValueError(f"host {host} differs from rank 0: {'; '.join(differ)}")
