"""Packages of Debian: recordings of speech, and OpenBLAS."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from greenroom.tests.real.packages import Unavailable, check, run_fetcher
from greenroom.tests.support.media.recordings import RATE, Sound

PACKAGE = "pocketsphinx-testdata"
FOLDER = "librivox"
"""Folder of the recordings in the cache."""
FRENCH_PACKAGE = "asterisk-core-sounds-fr-wav"
FRENCH = "french"
"""Folder of a sentence in French, spoken by a person for telephones."""
OPENBLAS = "openblas"
SENTENCES = {
    "0870": "and mister john dashwood had then leisure to consider how much there might be prudently in his "
    "power to do for them",
    "0880": "he was not an ill disposed young man",
    "0890": "unless to be rather cold hearted and rather selfish is to be ill disposed",
    "0920": "had he married a more amiable woman he might have been made still more respectable than he was",
    "0930": "he might even have been made amiable himself",
}
"""Sense and Sensibility, read aloud, by the names of the files."""
_SHA256 = {
    "0870": "b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c",
    "0880": "fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414",
    "0890": "5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10",
    "0920": "40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59",
    "0930": "954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7",
}
_FRENCH_SHA256 = "309b043d9702fb4c8f1d32c149b8ed96dfe53d34b8afa6644878515237aa2bde"


def fetch_recordings(cache: Path) -> None:
    """Write the recordings into the cache.

    Raises:
        Unavailable: There is no apt, or its archive cannot be reached.
        Spoiled: A recording is another one.
    """
    with unpacked([PACKAGE], cache) as folder:
        found = folder / "found"
        found.mkdir()
        for name, sha256 in _SHA256.items():
            (sound,) = (folder / "files").rglob(f"*64kb-{name}.wav")
            check(sound, sha256).rename(found / f"{name}.wav")
        found.rename(cache / FOLDER)


def fetch_french(cache: Path) -> None:
    """Write one of Asterisk's announcements in French into the cache; raises as `fetch_recordings` does."""
    with unpacked([FRENCH_PACKAGE], cache) as folder:
        found = folder / "found"
        found.mkdir()
        (sound,) = (folder / "files").rglob("tt-allbusy.wav")
        check(sound, _FRENCH_SHA256).rename(found / "busy.wav")
        found.rename(cache / FRENCH)


def fetch_openblas(cache: Path) -> None:
    """Write Debian's OpenBLAS into the cache, since hearing takes minutes with the BLAS of MLX's packages.

    Raises:
        Unavailable: There is no apt, or its archive cannot be reached.
    """
    with unpacked(["libopenblas0-pthread", "libgfortran5", "libquadmath0"], cache) as folder:
        found = folder / "found"
        found.mkdir()
        for name in ("libopenblas.so.0", "libgfortran.so.5", "libquadmath.so.0"):
            for library in (folder / "files").rglob(name):
                shutil.copy(library, found)
        found.rename(cache / OPENBLAS)


@contextmanager
def unpacked(packages: Sequence[str], cache: Path) -> Iterator[Path]:
    """Yield a folder whose `files` are those of Debian's packages, by apt with lists of its own."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Unavailable(f"{packages[0]} is a package of Debian, and there is no apt-get here")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        folder = Path(scratch)
        (folder / "lists" / "partial").mkdir(parents=True)
        apt = ["apt-get", "-qq", "-o", f"Dir::State::Lists={folder / 'lists'}", "-o", "Debug::NoLocking=1"]
        apt += ["-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30"]
        apt += ["-o", f"Dir::Cache::pkgcache={folder / 'pkgcache.bin'}", "-o", "Dir::Cache::srcpkgcache="]
        for step in (["update"], ["download", *packages]):
            run_fetcher([*apt, *step], folder, packages[0])
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", str(package), str(folder / "files")], check=True)
        yield folder


def read_sound(path: Path) -> Sound:
    """Return a WAV file's samples, from -1 to 1."""
    with wave.open(str(path)) as file:
        assert file.getframerate() == RATE
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return (samples / 32768).astype(np.float32)
