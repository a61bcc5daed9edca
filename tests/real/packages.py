"""Packages of registries with real weights, pinned by version and checksum, and read as data."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from greenroom.tests.support.packages.locked import UV, exported

SECONDS = float(os.environ.get("REAL_SECONDS") or 900)
"""Time limit of each download."""


PHONEMIZER = "phonemizer"
"""Folder of the packages that Kokoro needs to speak Spanish."""
_PHONEMIZER = ("misaki==0.9.4", "phonemizer-fork==3.3.2", "espeakng-loader==0.2.4")


class Unavailable(Exception):
    """A package that cannot be had here, with the reason in one line."""


class Spoiled(Exception):
    """A file whose content is not what was pinned."""


def check(path: Path, sha256: str) -> Path:
    """Return a file, once its SHA-256 has been compared.

    Raises:
        Spoiled: It is another file.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise Spoiled(f"{path.name} has the SHA-256 {found}, expected {sha256}")
    return path


def run_fetcher(command: list[str], folder: Path, what: str) -> None:
    """Run a package manager's command in a folder.

    Raises:
        Unavailable: It fails, or takes longer than `SECONDS`.
    """
    try:
        run = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} did not come within {SECONDS:.0f} s") from None
    if run.returncode:
        lines = run.stderr.strip().splitlines() or [f"{command[0]} failed"]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
        raise Unavailable(f"{what} is gone, or cannot be reached: {(errors or lines)[-1][-200:]}")


def download_wheel(pin: str, folder: Path) -> Path:
    """Return a wheel of the index that pip is configured for, by a `NAME==VERSION SHA256`.

    Raises:
        Unavailable: The index cannot be reached, or has it no more.
        Spoiled: It is another file.
    """
    requirement, sha256 = pin.split()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=30", f"--dest={folder}"]
    run_fetcher([*command, requirement], folder, requirement)
    name, version = requirement.split("==")
    (wheel,) = folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")
    return check(wheel, sha256)


def download_npm(pin: str, folder: Path) -> Path:
    """Return an archive of the registry that npm is configured for, by an `npm:NAME==VERSION SHA256`; raises
    as `download_wheel` does.
    """
    requirement, sha256 = pin.removeprefix("npm:").split()
    if shutil.which("npm") is None:
        raise Unavailable(f"{requirement} is a package of npm, which is not here")
    run_fetcher(["npm", "pack", "--silent", requirement.replace("==", "@")], folder, requirement)
    (archive,) = folder.glob("*.tgz")
    return check(archive, sha256)


def unpack(pin: str, cache: Path) -> Path:
    """Return the folder of a package's files, downloaded once; none of its code runs."""
    folder = cache / pin.split()[0].replace(":", "-")
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unpacked = Path(scratch, "files")
            if pin.startswith("npm:"):
                with tarfile.open(download_npm(pin, Path(scratch))) as archive:
                    archive.extractall(unpacked, filter="data")
            else:
                with zipfile.ZipFile(download_wheel(pin, Path(scratch))) as wheel:
                    wheel.extractall(unpacked)
            unpacked.rename(folder)
    return folder


def only_file(folders: list[Path], pattern: str) -> Path:
    """Return the one file of these folders that a pattern fits."""
    (found,) = (file for folder in folders for file in folder.rglob(pattern))
    return found


def join_files(parts: list[Path], path: Path) -> Path:
    """Write files, one after another, into one."""
    with path.open("wb") as out:
        for part in parts:
            out.write(part.read_bytes())
    return path


def install_phonemizer(cache: Path) -> None:
    """Install what writes Spanish as phonemes for Kokoro, in the versions of `uv.lock` where it has them.

    Raises:
        Unavailable: A package cannot be had, or not for this Python.
    """
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        pins, found = Path(scratch, "pins.txt"), Path(scratch, "found")
        pins.write_text("\n".join(map(str, exported("cpu"))))
        command = [UV, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(found)]
        run_fetcher([*command, "--constraint", str(pins), *_PHONEMIZER], cache, PHONEMIZER)
        found.rename(cache / PHONEMIZER)
