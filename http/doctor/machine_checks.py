"""Examine the platform, the device, its memory, and the limit on descriptors."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version

from greenroom.http.doctor.finding import Finding
from greenroom.http.process.descriptor_limit import raise_descriptor_limit
from greenroom.http.transport.descriptors import needed_descriptors
from greenroom.schemas.machine_report import MachineReport
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.settings import Settings


def check_platform() -> Iterator[Finding]:
    """Yield the versions of Greenroom, of Python and of the system."""
    yield Finding("greenroom", version("greenroom"))
    implementation = platform.python_implementation()
    translated = sys.platform == "darwin" and platform.machine() != "arm64"
    yield Finding("python", f"{platform.python_version()} ({implementation}, {platform.machine()})")
    told = f"{platform.platform()}, {os.cpu_count()} processors"
    if translated:
        told += ": Python is not made for Apple silicon, or runs under Rosetta; install one for arm64"
    yield Finding("system", told, translated)


def check_device(settings: Settings, found: MachineReport) -> Iterator[Finding]:
    """Yield the device of the settings, and the memory that models may have on it."""
    yield Finding("device", found.problem or found.device, found.problem is not None)
    if not found.memory:
        return
    asked = settings.memory_bytes
    most = found.limit if asked is None else asked
    limit = f"models may have {size_text(most)} of {size_text(found.memory)}"
    if asked is not None and asked > found.memory:
        yield Finding("memory", f"{limit}: memory_bytes is more than there is", wrong=True)
    else:
        yield Finding("memory", limit if asked is None else f"{limit} (memory_bytes)")


def check_descriptors(settings: Settings) -> Iterator[Finding]:
    """Yield the limit on open files, against the connections of the settings."""
    needed = needed_descriptors(settings.max_connections)
    allowed = raise_descriptor_limit(needed)
    told = f"{allowed:,}; {settings.max_connections:,} connections need {needed:,}"
    remedy = "" if allowed >= needed else ": raise `ulimit -Hn`, or lower max_connections"
    yield Finding("descriptors", told + remedy, allowed < needed)
