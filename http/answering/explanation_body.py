"""The member `greenroom` of a usage, and the signature of reasoning that a client sends back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import attrs

from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.explanation import Explanation


def explanation_body(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as clients see it, with seconds to a tenth of a millisecond; without what only
    a remote could tell.
    """
    prefix = attrs.asdict(explanation.prefix)
    preempted = attrs.asdict(explanation.preempted)
    cost = {
        "cached_tokens": attrs.asdict(explanation.cached),
        "prefix": {**prefix, "repeated_seconds": round(prefix["repeated_seconds"], 4)},
        "preempted": {**preempted, "seconds": round(preempted["seconds"], 4)},
    }
    return {
        **(cost if explanation.prefix.reason is not None else {}),
        "waited_seconds": {name: round(spent, 4) for name, spent in attrs.asdict(explanation.waits).items()},
        **({"chosen": explanation.chosen} if explanation.chosen else {}),
    }


def explanation_of(finished: Sequence[Finished], choices: int) -> Any:
    """Return the explanation of a response; an array with one for each prompt, if there are several.

    Returns None if the client has not asked for it.
    """
    prompts: dict[int, Explanation] = {}
    for event in sorted(finished, key=lambda event: event.index):
        if event.explanation is not None:
            first = prompts.get(event.index // choices)
            prompts[event.index // choices] = (
                event.explanation if first is None else first.plus(event.explanation)
            )
    bodies = [explanation_body(each) for each in prompts.values()]
    return bodies[0] if len(bodies) == 1 else bodies or None


# Signatures of reasoning text, which clients send back along with it.
#
# A signature shows that reasoning came unchanged from a server like this one. It uses neither key nor state,
# so that it holds after a restart and on another machine. It does not stop a client that forges one, which
# could as well write the reasoning into a message. Hidden reasoning travels inside its signature.

LEFT_OUT = "the model does not see reasoning that this server did not sign, such as another server's"
"""Notice to clients whose histories hold such reasoning."""

_VERSION = "gr1"


class ReasoningSigner:
    """Signs reasoning incrementally. `hidden`: True if the reasoning is hidden and travels inside its
    signature.
    """

    def __init__(self, hidden: bool) -> None:
        self._digest = _new_digest()
        self._pieces: list[bytes] | None = [] if hidden else None

    def add(self, text: str) -> None:
        piece = _encode(text)
        self._digest.update(piece)
        if self._pieces is not None:
            self._pieces.append(piece)

    def signature(self) -> str:
        parts = [_VERSION, self._digest.hexdigest()]
        if self._pieces is not None:
            parts.append(base64.b64encode(b"".join(self._pieces)).decode())
        return ".".join(parts)


def sign(reasoning: str, *, hidden: bool = False) -> str:
    signer = ReasoningSigner(hidden)
    signer.add(reasoning)
    return signer.signature()


def signed_reasoning(shown: str, signature: str) -> str | None:
    """Return the reasoning that a signature covers; None if the signature does not match. `shown`: reasoning
    text from the client; empty if the text travels inside the signature.
    """
    version, _, rest = signature.partition(".")
    digest, _, hidden_text = rest.partition(".")
    reasoning = _encode(shown)
    if hidden_text and not shown:
        try:
            reasoning = base64.b64decode(hidden_text, validate=True)
        except (binascii.Error, ValueError):
            return None
    expected = _new_digest()
    expected.update(reasoning)
    if version != _VERSION or digest != expected.hexdigest():
        return None
    return reasoning.decode("utf-8", "replace")


def _new_digest() -> blake2b:
    return blake2b(digest_size=16, person=b"thought")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
