"""Answering of requests with a stored response: the actor generates it, and the request subscribes to it."""

from __future__ import annotations

import json
from contextlib import closing
from typing import cast

import attrs
from quart import Response
from werkzeug.datastructures import MultiDict

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.responses.event_log import ConversationLock, Subscribed, Subscription
from greenroom.http.answering.collecting import ChoiceCollector, CollectedChoice
from greenroom.http.answering.current_request import (
    request_client,
    request_owner,
    request_resources,
    send_notice,
    tell_backend,
)
from greenroom.http.answering.event_stream import Events, EventStream, wait_for_first_event
from greenroom.http.answering.http_responses import stored_json_response, stream_response
from greenroom.http.answering.request_parameters import query_boolean
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.http.responses.history_reader import HistoryReader, locked_conversation
from greenroom.http.responses.item_bodies import check_included, encrypt_reasoning
from greenroom.http.responses.mcp_tools import response_loop
from greenroom.http.responses.request_parser import ParsedResponseRequest
from greenroom.http.responses.response_object import (
    ResponseEcho,
    ResponseHead,
    ending,
    output_items,
    response_members,
)
from greenroom.http.responses.response_stream import ResponseStream
from greenroom.schemas.events.events import Admitted, Finished, Usage
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import BACKGROUND
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.protocols.responses_protocol import RunEnded, RunEvent, RunOutcome, StartRun
from greenroom.schemas.stored import UNFINISHED, StoredItem, StoredResponse
from greenroom.schemas.wire.responses_requests import ENCRYPTED_REASONING


async def answer_stored(
    services: RouteServices, histories: HistoryReader, request: ParsedResponseRequest, *, stream: bool
) -> Response:
    """Generate and store a response, and return it: complete, as a stream, or in its initial state. Raises
    ProblemError: the request is rejected, or failed before its status was sent.
    """
    responses = services.refs.responses
    # Locked before its history is read.
    async with locked_conversation(responses, request.conversation, request_owner()) as lock:
        start = await _prepare(services, histories, request, lock, stream=stream)
        subscribed = await ask_actor(responses, start, Subscribed)
    subscription = subscribed.subscription
    request_resources().enter_context(closing(subscription))
    if not stream:
        response = subscribed.response or await _ended(subscription)
        send_notice(subscription.receive_ready())
        tell_backend(subscription.backend)
        return await stored_response(services.answers, response)
    events, made = as_events(subscription), request.formatter
    received = [] if request.background else await wait_for_first_event(events, services.status_timeout)
    send_notice(received)
    tell_backend(subscription.backend)
    head = ResponseHead(made.answer_id, subscription.model or str(start.request.key), made.created)
    return stream_response(EventStream(events, StoredStream(made.echo, head), received))


def as_events(subscription: Subscription) -> Events:
    """Return a subscription typed as a stream's events; `StoredStream` accepts all of its entries."""
    return cast("Events", subscription)


async def stored_response(answers: AnswerAccount, response: StoredResponse) -> Response:
    """Return the HTTP response with a stored response. Raises ProblemError: 503 if unsent responses use up
    the memory budget.
    """
    return await stored_json_response(answers, len(response.body), response.body.encode)


async def _prepare(
    services: RouteServices,
    histories: HistoryReader,
    request: ParsedResponseRequest,
    lock: ConversationLock | None,
    *,
    stream: bool,
) -> StartRun:
    owner = request_owner()
    complete = await histories.complete(request, owner, request_client())
    writer = ResponseWriter(
        request.formatter.echo,
        request.formatter.answer_id,
        request.formatter.created,
        str(complete.request.key),
        owner,
        complete.stored_input,
        request.background,
        request.conversation,
        request.previous if request.conversation is None else None,
        keeps_prompt=complete.turns.system_prompt is None,
    )
    inference = await services.with_files(complete.request)
    background, patience = request.background, services.status_timeout
    limited = not (stream or background)
    if background and not stream:  # nobody waits for it
        inference = attrs.evolve(inference, priority=max(inference.priority, BACKGROUND))
    loop = await response_loop(services, request, complete)
    return StartRun(inference, writer.id, owner, writer, background, patience, lock, limited, loop)


async def _ended(subscription: Subscription) -> StoredResponse:
    end = await subscription.wait_ended()
    if end.problem is not None:
        raise ProblemError(end.problem)
    assert isinstance(end, RunEnded)
    return end.response


_CUT_OFF = Finished("cancelled", Usage())


@attrs.frozen
class ResponseWriter:
    """Makes the stored form of one response, for every outcome.

    Args:
        id: The response's id, `resp_…`.
        created: Unix time of creation in seconds.
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
    texts = (getattr(part, "text", "") or getattr(part, "arguments", "") for part in choice.parts)
    return "".join(texts)


_LONGEST_NUMBER = 15  # Limit of digits; no stream has so many events


@attrs.frozen
class StoredQuery:
    """Options for showing a stored response.

    Args:
        stream: True to return the response as events.
        starting_after: Number of the last event that the client has; -1 for none.
        encrypted: True to add encrypted content to reasoning items, even if the original request did not ask
            for it.
        obfuscates: True to pad deltas, False not to; None for the option of the original request.
    """

    stream: bool
    starting_after: int
    encrypted: bool
    obfuscates: bool | None = None


def parse_stored_query(query: MultiDict[str, str]) -> StoredQuery:
    """Return the parsed query parameters. Raises ProblemError (400) that names an invalid parameter."""
    stream = bool(query_boolean(query, "stream"))
    obfuscates = query_boolean(query, "include_obfuscation")
    after = query.get("starting_after")
    if after is not None and not stream:
        raise invalid("`starting_after` is only of use with `stream=true`.", "starting_after")
    included = check_included(query)
    return StoredQuery(
        stream, -1 if after is None else _number(after), ENCRYPTED_REASONING in included, obfuscates
    )


def with_encrypted_reasoning(stored: StoredResponse) -> StoredResponse:
    """Return a response with encrypted content in its reasoning items. May take long if it is large."""
    response = json.loads(stored.body)
    response["output"] = [encrypt_reasoning(item) for item in response["output"]]
    return attrs.evolve(stored, body=json.dumps(response))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        detail = "`starting_after` must be the number of an event, which is 0 or more."
        raise invalid(detail, "starting_after")
    return int(text)


class StoredStream(ResponseStream):
    """Formats the log of a run as the event stream of its response.

    Only the log counts: news and heartbeats are entries of the log, and the end is the stored response.

    Args:
        adds_encrypted: True to add encrypted content to reasoning items, which the stored form lacks.
    """

    has_news = False

    def __init__(
        self,
        echo: ResponseEcho,
        head: ResponseHead,
        *,
        starting_after: int = -1,
        adds_encrypted: bool = False,
    ) -> None:
        super().__init__(echo, head, starting_after=starting_after)
        self._adds_encrypted = adds_encrypted

    def event(self, event: RunEvent) -> bytes:
        if self._adds_encrypted and isinstance(event, RunEnded):
            event = attrs.evolve(event, response=with_encrypted_reasoning(event.response))
        return super().event(event)

    def heartbeat(self) -> bytes:
        """Return nothing: all readers must get the same numbered events."""
        return b""


def stream_of(stored: StoredResponse, query: StoredQuery) -> StoredStream:
    """Return a formatter of a stored response's log. May take long if the echo is large.

    The stream is the one that the request wanted, with the query's options applied.
    """
    response = json.loads(stored.body)
    head = ResponseHead(stored.id, stored.model, response["created_at"])
    created = ResponseEcho.of(response, obfuscates=query.obfuscates)
    adds_encrypted = query.encrypted and not created.encrypts_reasoning
    echo = attrs.evolve(created, encrypts_reasoning=True) if adds_encrypted else created
    return StoredStream(echo, head, starting_after=query.starting_after, adds_encrypted=adds_encrypted)
