"""A sweep of all hostile files and URLs over all endpoints that accept them; random attacks miss some."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.tests.attack.requests import files
from greenroom.tests.attack.requests.media import (
    BY_DOCUMENT,
    BY_IMAGE,
    BY_URL,
    with_file,
    with_text,
    with_url,
)
from greenroom.tests.attack.requests.other_kinds import FORM_PATHS, broken_form, form_call
from greenroom.tests.attack.requests.sockets import HARMS
from greenroom.tests.attack.requests.steps import Abandoned, Attack, Call, Ending, FormCall, HarmfulSockets
from greenroom.tests.support.hostile import addresses, pictures, sounds, uploads

_TOGETHER = 24
"""Requests of one attack, sent one after another; a fault names the request that caused it."""
_MANY = 16
"""Number of clients that send the same request at once."""
_LONG_SECONDS = 10.0
"""Seconds after which they abandon a request that would take minutes."""


def sweep(text_model: str, kinds: tuple[str, ...]) -> Iterator[Attack]:
    """Yield attacks that together cover every file, invalid text and URL.

    Args:
        text_model: Model without vision, used if no vision model is given.
        kinds: Names of other models, from `kinds.KINDS`.
    """
    calls: list[Call | FormCall] = []
    model = "sees" if "sees" in kinds else text_model
    calls += [with_file(envelope, file, model) for envelope in BY_IMAGE for file in files.names("image")]
    calls += [
        with_file(envelope, file, model) for envelope in BY_DOCUMENT for file in files.names("document")
    ]
    texts = (*pictures.WRONG_BASE64, *pictures.WRONG_DATA_URLS)
    calls += [with_text(envelope, text, model) for envelope in (*BY_IMAGE, *BY_DOCUMENT) for text in texts]
    calls += [with_url(envelope, url, model) for envelope in BY_URL for url in addresses.all_refused()]
    if "hears" in kinds:
        calls += [form_call(FORM_PATHS[0], "hears", file) for file in (*files.names("sound"), "1 GB")]
        calls += [
            form_call(path, "hears", "sound: plain", name) for path in FORM_PATHS for name in uploads.NAMES
        ]
        calls += [broken_form(path, broken) for path in FORM_PATHS for broken in uploads.BROKEN_FORMS]
    for begin in range(0, len(calls), _TOGETHER):
        yield Attack(tuple(calls[begin : begin + _TOGETHER]))
    for harm in HARMS:
        yield Attack((HarmfulSockets(harm, _MANY),))
    if "sees" in kinds:
        large = [with_file("chat", f"image: {name}", "sees", count=5, copies=8) for name in pictures.LARGE]
        yield Attack((*large, with_file("chat", "image: plain", "sees")), at_once=True)
    if "hears" in kinds:
        silence = form_call(FORM_PATHS[0], "hears", f"sound: {sounds.LONG_SILENCE}")
        yield Attack((Abandoned(silence, _LONG_SECONDS, Ending.RESET, _MANY),))
