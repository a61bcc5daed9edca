"""notes/licences.md names every runtime package, and each copyleft one was reviewed."""

from __future__ import annotations

import re
import sys

import pytest

from greenroom.tests.support.packages.licences import (
    NOTE,
    bundled_files,
    is_copyleft,
    licence_of,
    runtime_packages,
    table_rows,
)

KNOWN_COPYLEFT = {"certifi": "MPL-2.0", "tqdm": "MPL-2.0 AND MIT", "mlx-embeddings": "GPL-3.0"}
"""Reviewed copyleft packages: the first two do not restrict users of Greenroom, the third is an extra."""

_GCC = {"libgfortran", "libgomp", "libquadmath"}
COPYLEFT_FILES = {
    "av": {
        *("libasound", "libavcodec", "libavdevice", "libavfilter", "libavformat", "libavutil", "libgmp"),
        *("libgnutls", "libhogweed", "libmp3lame", "libnettle", "libswresample", "libswscale"),
        *("libunistring", "libx264", "libx265"),
    },
    "pillow-heif": {"libde265", "libheif", "libx265"},
    **dict.fromkeys(("mlx-cpu", "numpy", "scipy", "sentencepiece"), _GCC),
}
"""Libraries bundled in wheels under other, copyleft licences than the wheel's."""

PERMISSIVE_FILES = {
    *(
        "libSvtAv1Enc",
        "libXau",
        "libavif",
        "libblas",
        "libbrotlicommon",
        "libbrotlidec",
        "libdav1d",
        "libdrm",
    ),
    *("libfreetype", "libharfbuzz", "libjpeg", "liblapack", "liblcms2", "liblzma", "libopencore-amrnb"),
    *("libopencore-amrwb", "libopenjp2", "libopus", "libpng16", "libscipy_openblas", "libscipy_openblas64_"),
    *(
        "libsharpyuv",
        "libtiff",
        "libvmaf",
        "libvpl",
        "libvpx",
        "libwebp",
        "libwebpdemux",
        "libwebpmux",
        "libxcb",
    ),
    *("libxcb-shape", "libxcb-shm", "libxcb-xfixes", "libzstd"),
}
"""Libraries bundled in wheels for Linux whose licences only require their text."""


def test_the_table_names_every_package_that_runs() -> None:
    remarks = {name: remark for name, (_, remark) in table_rows().items()}
    assert remarks == runtime_packages(), "run `make licences`"


def test_no_copyleft_package_comes_unnoticed() -> None:
    found = {name: licence for name in runtime_packages() if is_copyleft(licence := licence_of(name))}
    assert found == KNOWN_COPYLEFT
    assert runtime_packages()["mlx-embeddings"] == "extra `embeddings`", "nothing else may need it"


def test_the_table_tells_the_licences() -> None:
    for name, (licence, _) in table_rows().items():
        assert licence.startswith("**") == (name in KNOWN_COPYLEFT), name
    assert table_rows()["trio"][0] == "MIT OR Apache-2.0"
    assert table_rows()["certifi"][0] == "**MPL-2.0**"


def test_copyleft_code_inside_wheels_is_named() -> None:
    inside = NOTE.read_text().partition("## Inside wheels")[2].partition("## Packages")[0]
    assert all(re.search(rf"^\|.*\b{package}\b.*\|", inside, re.MULTILINE) for package in COPYLEFT_FILES)
    found = {package: files - PERMISSIVE_FILES for package, files in bundled_files().items()}
    assert {"libx264", "libx265"} <= found["av"]
    if sys.platform == "linux":  # the libraries have other names on macOS
        unnamed = {package: files - COPYLEFT_FILES.get(package, set()) for package, files in found.items()}
        assert not any(unnamed.values()), f"look at their licences: {unnamed}"


@pytest.mark.parametrize("licence", ["LGPL-2.1-or-later", "GNU Affero General Public License v3", "MPL-2.0"])
def test_copyleft_licences_are_known(licence: str) -> None:
    assert is_copyleft(licence)


@pytest.mark.parametrize("licence", ["MIT", "Apache-2.0 AND CNRI-Python", "BSD", "PSF-2.0", "MIT-CMU", "ISC"])
def test_permissive_licences_are_not(licence: str) -> None:
    assert not is_copyleft(licence)
