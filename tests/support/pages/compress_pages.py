"""Write the compressed files of the pages, which are what is served: `make pages`."""

from __future__ import annotations

import gzip
import shutil

from greenroom.http.pages.page_routes import COMPRESSED, SITE

LARGEST = 130_000
"""Bytes that all files together may have over the wire."""


def main() -> None:
    """Compress every file anew; the time is left out, so that the same file gives the same bytes."""
    shutil.rmtree(COMPRESSED, ignore_errors=True)
    total = 0
    for path in sorted(path for path in SITE.rglob("*") if path.is_file()):
        target = COMPRESSED / f"{path.relative_to(SITE)}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        compressed = gzip.compress(path.read_bytes(), 9, mtime=0)
        target.write_bytes(compressed)
        total += len(compressed)
    print(f"{total:,} bytes of {LARGEST:,}")


if __name__ == "__main__":
    main()
