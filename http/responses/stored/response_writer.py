"""The stored form of a response: its object, and the items that its turn adds to a conversation."""

from __future__ import annotations

import json

import attrs

from greenroom.http.answering.collecting.collected_answer import ChoiceCollector, CollectedChoice, Reasoning
from greenroom.http.responses.output.output_items import output_items
from greenroom.http.responses.output.response_object import (
    ResponseEcho,
    ResponseHead,
    ending,
    response_members,
)
from greenroom.schemas.events.events import Admitted, Finished, Usage
from greenroom.schemas.messages.messages import JsonObject, TextPart
from greenroom.schemas.protocols.responses_protocol import RunOutcome
from greenroom.schemas.stored import UNFINISHED, StoredItem, StoredResponse

_CUT_OFF = Finished("cancelled", Usage())


@attrs.frozen
class ResponseWriter:
    """Makes the stored form of one response, for every outcome.

    Args:
        id: The response's id, `resp_…`.
        created: Unix time of creation in seconds.
        model: The model's name in the request.
        input: The request's own items.
        keeps_prompt: True if this turn determines the operator's system prompt for later turns.
    """

    echo: ResponseEcho
    id: str
    created: int
    model: str
    owner: str
    input: tuple[StoredItem, ...]
    background: bool = False
    conversation: str | None = None
    parent: str | None = None
    keeps_prompt: bool = True

    def __call__(self, outcome: RunOutcome) -> StoredResponse:
        """Return the response to store."""
        head = ResponseHead(self.id, outcome.model or self.model, self.created)
        output: list[JsonObject] = []
        raw = ""
        if outcome.status not in UNFINISHED:
            choice = _collected(outcome)
            raw = choice.finished.raw or _written(choice)
            if choice.parts or outcome.status != "failed":
                encrypts = self.echo.encrypts_reasoning
                output = [*output_items(choice, self.id, self.echo.calls, encrypts_reasoning=encrypts)]
        return StoredResponse(
            self.id,
            self.owner,
            head.model,
            outcome.status,
            self.created,
            self._body(head, outcome, output),
            outcome.ended,
            self.background,
            self.conversation,
            self.parent,
            self.input,
            tuple(StoredItem(str(item["id"]), json.dumps(item)) for item in output),
            raw,
            system_prompt=self._system_prompt(outcome),
        )

    def _system_prompt(self, outcome: RunOutcome) -> str | None:
        admitted = _admitted(outcome) if self.keeps_prompt else None
        return None if admitted is None else admitted.system_prompt

    def _body(self, head: ResponseHead, outcome: RunOutcome, output: list[JsonObject]) -> str:
        finished = next((event for event in outcome.events if isinstance(event, Finished)), None)
        admitted = _admitted(outcome)
        echo = self.echo if admitted is None else self.echo.answered_with(admitted.parameters)
        incomplete = ending(finished)[1] if finished is not None and outcome.status == "incomplete" else None
        members = response_members(
            head,
            outcome.status,
            completed=None if outcome.ended is None else int(outcome.ended),
            output=output,
            finished=finished,
            problem=outcome.problem,
            incomplete=incomplete,
            dropped_messages=0 if admitted is None else admitted.dropped_messages,
        )
        # The echo may be megabytes, and is already encoded.
        return f"{json.dumps(members)[:-1]}, {echo.encoded.decode()}}}"


def _admitted(outcome: RunOutcome) -> Admitted | None:
    """Return the event that describes the run's prompt, or None if it was never admitted."""
    return next((event for event in outcome.events if isinstance(event, Admitted)), None)


def _collected(outcome: RunOutcome) -> CollectedChoice:
    """Return the output; an incomplete one ends as if it had been cancelled."""
    collector = ChoiceCollector()
    for event in outcome.events:
        collector.add(event)
    if collector.finished is None or outcome.status == "failed":
        collector.add(_CUT_OFF)
    choice = collector.collected()
    assert choice is not None
    return choice


def _written(choice: CollectedChoice) -> str:
    """Return the model's text, from the events, for an answer without an end."""
    texts = [part.text if isinstance(part, TextPart | Reasoning) else part.arguments for part in choice.parts]
    return "".join(texts)
