"""Tell in one line why Greenroom cannot be installed on this machine, and what helps; make asks first.

Runs on any Python from 3.6 up, since that may be the reason. Exits with 2, or with 0 behind a warning.
"""

import os
import platform
import subprocess
import sys
import sysconfig

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
OLDEST_MACOS, OLDEST_GLIBC = (14, 0), (2, 35)
"""Oldest systems of MLX's wheels (`macosx_14_0_arm64`, `manylinux_2_35_x86_64` and `…_aarch64`)."""
PYTHON = ".".join(map(str, sys.version_info[:2]))


def version(text):
    """Return the first two numbers of a version; None if there are none."""
    numbers = [int(part) for part in text.split(".")[:2] if part.isdigit()]
    return tuple(numbers) if len(numbers) == 2 else None


def translated():
    """Return whether this process is an Intel program that Rosetta translates on Apple silicon."""
    try:
        asked = subprocess.run(["sysctl", "-n", "sysctl.proc_translated"], stdout=-1, stderr=-1)
    except OSError:
        return False
    return asked.stdout.strip() == b"1"


def why_no_mac():
    """Return the reason why MLX cannot run on this Mac, and the remedy; None if it can."""
    if platform.machine() != "arm64":
        if translated():
            return (
                "This Python is built for Intel and runs under Rosetta; MLX needs one for Apple silicon: "
                "make PYTHON=/opt/homebrew/bin/python3, or the installer from python.org."
            )
        return "MLX needs Apple silicon, and this Mac has an Intel processor: use an M1 or newer, or Linux."
    found = version(platform.mac_ver()[0])
    # 10.16 is what an old program is told of any newer macOS.
    if found and found != (10, 16) and found < OLDEST_MACOS:
        return (
            f"MLX needs macOS 14 or newer, and this is {found[0]}.{found[1]}: update it in System Settings."
        )
    return None


def glibc():
    """Return the version of the C library, or an empty text if it is another one."""
    try:
        name, found = os.confstr("CS_GNU_LIBC_VERSION").split()
    except (ValueError, OSError, AttributeError):
        return ""
    return found if name == "glibc" else ""


def why_no_linux():
    """Return the reason why MLX cannot run on this Linux, and the remedy; None if it can."""
    machine, found = platform.machine(), glibc()
    if machine not in ("x86_64", "aarch64"):
        return f"MLX has no build for {machine}: use a machine of x86_64 or aarch64."
    if (version(found) or OLDEST_GLIBC) < OLDEST_GLIBC or "musl" in str(
        sysconfig.get_config_var("HOST_GNU_TYPE")
    ):
        return (
            f"MLX needs glibc 2.35 or newer (Ubuntu 22.04, Debian 12, RHEL 10), and this system has "
            f"{found or 'musl'}: use a newer one, or a container of python:3.13-bookworm."
        )
    return None


def why_not():
    """Return the reason why Greenroom cannot be installed, and the remedy; None if it can."""
    system = platform.system()
    if system not in ("Darwin", "Linux"):
        return f"Greenroom runs on macOS and Linux, and this is {system}: use WSL 2 on Windows."
    reason = why_no_mac() if system == "Darwin" else why_no_linux()
    if reason is None and sys.version_info[:2] < OLDEST_PYTHON:
        return f"Greenroom needs Python 3.11 or newer, and this is {PYTHON}: make PYTHON=/path/to/python3.11"
    return reason


def main():
    """Print the reason or a warning for this machine and Python; return the exit status."""
    reason = why_not()
    if reason is not None:
        sys.stderr.write(reason + "\n")
        return 2
    if sys.version_info[:2] > NEWEST_PYTHON:
        sys.stderr.write(
            f"Warning: Greenroom was not tested with Python {PYTHON}, and packages without wheels for it are "
            "built, which takes a compiler: Python 3.11 to 3.14 need none.\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
