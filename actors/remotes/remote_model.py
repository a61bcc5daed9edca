"""The actor of a model that lives elsewhere: sends requests to its remote, and passes on the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.model.model import Lifecycle
from greenroom.actors.model.running_requests import Preparation, RequestRecords, RunningRequest, records_of
from greenroom.actors.remotes import anthropic_wire, media_wire, openai_wire, responses_wire
from greenroom.actors.remotes.remote_call import Call, as_json, parameters_of, unsupported
from greenroom.actors.remotes.remote_servers import NO_KEY, RemoteServer
from greenroom.engine.catalog.operator_texts import system_prompt_of
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent, Timing
from greenroom.schemas.events.explanation import Explanation
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages import requests as asks
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput, SpeechInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, ProblemError, internal_error, model_crashed
from greenroom.schemas.protocols import model_protocol as protocol
from greenroom.schemas.settings.remotes import Remote
from greenroom.schemas.settings.setting_groups import GenerationDefaults

if TYPE_CHECKING:
    from greenroom.actors.engines.engines import Engines
    from greenroom.actors.remotes.remote_client import RemoteClient

CHARACTERS_PER_TOKEN = 4
"""Characters of a token, for estimates where only the remote can count."""
_COMMON = ("temperature", "top_p", "max_tokens")
_CALLS: dict[str, dict[type[Any], Callable[..., Call]]] = {
    "anthropic": {ChatInput: anthropic_wire.messages_call},
    "responses": {ChatInput: responses_wire.response_call},
    "openai": {
        ChatInput: openai_wire.chat_call,
        RawInput: openai_wire.raw_call,
        asks.EmbeddingInput: media_wire.embedding_call,
        asks.ScoreInput: media_wire.score_call,
        SpeechInput: media_wire.speech_call,
        asks.TranscriptionInput: media_wire.transcription_call,
    },
}
"""Makers of calls by protocol and by input. A Greenroom's is OpenAI's, with more parameters."""


class RemoteModel:
    """The actor of a remote model. It takes no memory here, and has slots of its own.

    Args:
        there: Name of the model in the remote.
        report: Callback for reports; must not block.
    """

    takes_room = False
    released = True

    def __init__(
        self,
        key: ModelKey,
        state: ModelState,
        report: Callable[[protocol.ModelReport], None],
        server: RemoteServer,
        there: str,
        engines: Engines,
    ) -> None:
        self.key, self.slots = key, server.remote.slots
        self._server, self._there, self._report = server, there, report
        self._names, self._records = engines.names, records_of(engines)
        self._lifecycle = Lifecycle(state)
        self._inbox: Inbox[protocol.ModelMessage] = Inbox()
        self.ref: Ref[protocol.ModelMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._log = get_logger().bind(actor="remote", model=str(key))
        self._prepared: dict[Reply, tuple[Preparation, Call]] = {}
        self._replies: set[Reply] = set()
        self._client: RemoteClient | None = None

    def send(self, command: protocol.ModelCommand) -> None:
        self._control.send(command)

    async def wait_released(self) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        problem = model_crashed(self.key.model)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inbox.forward, self._control)
                while self._receive(await self._control.receive(), nursery):
                    pass
                nursery.cancel_scope.cancel("the model actor stops")
        finally:
            self._fail_all(problem)
            self._control.close(problem)
            if self._client is not None:
                await self._client.aclose()

    def _receive(self, received: Any, nursery: trio.Nursery) -> bool:
        match received:
            case Envelope(message, reply):
                self._answer(message, reply or Reply(), nursery)
            case protocol.Load() if self._lifecycle.state is not ModelState.READY:
                self._change(ModelState.LOADING)
                self._change(ModelState.READY)
            case protocol.Unload(reason) if self._lifecycle.state is ModelState.READY:
                self._change(ModelState.UNLOADING, reason=reason)
                self._lifecycle.move(ModelState.IDLE, self._log)
                self._report(protocol.Unloaded())
            case protocol.Trim():
                self._report(protocol.Trimmed(0))
            case protocol.FailRequests(problem):
                self._fail_all(problem)
        return not isinstance(received, protocol.Stop)

    def _change(self, state: ModelState, **why: str) -> None:
        self._lifecycle.move(state, self._log, **why)
        self._report(protocol.StateChanged(state))

    def _fail_all(self, problem: Problem) -> None:
        for reply in [*self._replies]:
            reply.fail(problem)

    def _answer(self, message: protocol.ModelMessage, reply: Reply, nursery: trio.Nursery) -> None:
        match message:
            case protocol.Prepare(request):
                nursery.start_soon(self._prepare, request, reply)
            case protocol.Generate() if reply in self._prepared:
                nursery.start_soon(self._generate, message, reply, *self._prepared.pop(reply))
            case _:  # prepared by an actor before this one, unless its client has left
                reply.fail(model_crashed(self.key.model))

    async def _prepare(self, request: InferenceRequest, reply: Reply) -> None:
        """Charge the request to its client, and admit it: its remote checks the rest."""
        preparation = Preparation(request, reply)
        self._records.prepare(preparation)
        try:
            call, admitted = await trio.to_thread.run_sync(self._call, request)
            self._records.charge(preparation, _estimated_tokens(request))
        except ProblemError as error:
            reply.fail(error.problem)
            return
        except Exception:  # such as a voice's file that has gone
            self._log.exception("request crashed", request_id=request.id)
            reply.fail(internal_error())
            return
        self._prepared[reply] = preparation, call
        reply.watch(lambda: self._forget(reply))
        reply.send(admitted)

    def _call(self, request: InferenceRequest) -> tuple[Call, Admitted]:
        """Return the call of a request with the operator's defaults, and its admission. It reads files."""
        settings, name, remote = self._names.settings, self.key.model, self._server.remote
        asked, prompt, parameters = request.input, None, None
        if isinstance(asked, ChatInput) and (
            prompt := asked.operators_prompt(system_prompt_of(name, settings))
        ):
            asked = attrs.evolve(asked, messages=(Message("system", (TextPart(prompt),)), *asked.messages))
        if isinstance(asked, ChatInput | RawInput):
            names = attrs.fields_dict(GenerationDefaults)
            # What not every server takes is sent to others only if it is meant for this model.
            common = names if remote.api == "greenroom" else _COMMON
            own, applied = settings.of_model(name), settings.applied_to(name)
            found = {each: getattr(applied if each in common else own, each) for each in names}
            given = {each: value for each, value in found.items() if value is not None}
            request = attrs.evolve(request, input=asked, defaults={**given, **request.defaults})
            parameters = GenerationParameters(**parameters_of(request))
        admitted = Admitted(0, system_prompt=prompt, parameters=parameters)
        return call_of(request, self._there, remote), admitted

    def _forget(self, reply: Reply) -> None:
        if (left := self._prepared.pop(reply, None)) is not None:
            self._records.settle(left[0])

    async def _generate(
        self, message: protocol.Generate, reply: Reply, prepared: Preparation, call: Call
    ) -> None:
        request, estimate = message.request, _estimated_tokens(message.request)
        running = RunningRequest(
            request, request.id, reply, estimate, request.choices, message.queued, waits=message.waits
        )
        running.charged = prepared.charged
        self._records.submit(running)
        self._replies.add(reply)
        answer = _Answer(running, self._records, self._server.breaker.succeed)
        try:
            with trio.CancelScope() as scope:
                reply.watch(lambda: None if answer.is_whole else scope.cancel("the request has ended"))
                await self._ask(request, call, answer)
        except Exception:
            self._log.exception("request crashed", request_id=request.id)
            answer.fail(internal_error())
        finally:
            self._replies.discard(reply)
            if not answer.is_whole and running.problem is None:
                running.problem = reply.problem
            running.log_end(self._log.bind(remote=self._server.name))
            ended = running.ended()
            self._report(ended)
            self._records.end(running, ended, backend=self._server.name)

    async def _ask(self, request: InferenceRequest, call: Call, answer: _Answer) -> None:
        from greenroom.actors.remotes.remote_client import CallFailure, RemoteClient

        server, remote = self._server, self._server.remote
        try:
            key = await trio.to_thread.run_sync(remote.key)
        except ValueError as error:
            server.failures += 1
            self._log.warning("remote away", remote=server.name, reason=str(error))
            answer.fail(Problem(503, "remote_refused", f"The remote '{server.name}': {NO_KEY}."))
            return
        now = time.monotonic()
        if (refusal := server.refusal(answer, now)) is not None:
            answer.fail(refusal)
            return
        if self._client is None:
            self._client = RemoteClient(server.name, remote, server.record_traffic)
        server.requests += 1
        server.running += 1
        try:
            headers = {"x-client-request-id": request.id}
            if request.trace is not None:
                headers |= request.trace.fields
            await self._client.ask(call, key, headers, answer.take)
            if not answer.is_whole:  # nobody would end the request
                self._client.fail("failed", "its answer has no end")
        except CallFailure as failure:
            server.failures += 1
            server.leave_alone(failure.pause)
            if failure.counts:
                server.breaker.fail(answer, time.monotonic(), failure.reason)
                if server.breaker.state(time.monotonic()) == "open":
                    self._log.warning("remote is not asked for a while", reason=failure.reason)
            else:
                server.breaker.succeed(answer)  # it is there
            answer.fail(failure.problem)
        finally:
            server.running -= 1
            server.breaker.leave(answer)


class _Answer:
    """The answer to a request, as its events come.

    Args:
        on_whole: Callback for this answer when all of it has come; must not block.

    Attributes:
        is_whole: True once all choices have ended, or the request has failed.
    """

    def __init__(
        self, running: RunningRequest, records: RequestRecords, on_whole: Callable[[_Answer], None]
    ) -> None:
        self._running, self._readers, self._on_whole = running, records.readers, on_whole
        # Of its cost only the remote could tell.
        self._explanation = Explanation() if records.explains and running.request.chosen else None
        self._begun: float | None = None
        self.is_whole = False

    def take(self, event: InferenceEvent) -> None:
        """Pass on an event of the remote."""
        running = self._running
        if self.is_whole:
            return
        begun = self._begun = self._begun or time.monotonic()
        if isinstance(event, Finished):
            timing = Timing(0.0, begun - running.started, time.monotonic() - begun)
            event = running.completed(attrs.evolve(event, timing=timing, explanation=self._explanation))
        for read in self._readers:
            read(running.request_id, event)
        if not isinstance(event, Finished):
            running.reply.send(event)
            return
        running.reply.send(running.told(event))
        self.is_whole = running.record_end(event)
        if self.is_whole:
            self._on_whole(self)
            running.reply.end()

    def fail(self, problem: Problem) -> None:
        """Fail the request, unless its answer has ended."""
        if not self.is_whole:
            self.is_whole = True
            self._running.record_end(Failed(problem))
            self._running.reply.fail(problem)


def call_of(request: InferenceRequest, there: str, remote: Remote) -> Call:
    """Return the call of a request for a model that has this name there.

    Raises:
        ProblemError: 400: the remote's protocol cannot express it.
    """
    make = _CALLS.get(remote.api, _CALLS["openai"]).get(type(request.input))
    if make is None:
        raise unsupported("Anything but a chat", remote.api)
    return make(request, request.input, there, remote)


def _estimated_tokens(request: InferenceRequest) -> int:
    """Return the estimated length of a prompt in tokens: images and sounds are not counted."""
    texts: Sequence[str | tuple[int, ...]] = ()
    match request.input:
        case ChatInput(messages=messages, tools=tools):
            calls = [call.arguments for message in messages for call in message.tool_calls]
            schemas = [as_json(tool.parameters) for tool in tools]
            texts = [*(message.text for message in messages), *calls, *schemas]
        case RawInput(prompt=prompt):
            texts = [prompt]
        case asks.EmbeddingInput(texts=texts):
            pass
        case asks.ScoreInput(pairs=pairs):
            texts = [text for pair in pairs for text in pair]
    lengths = (len(text) if isinstance(text, str) else len(text) * CHARACTERS_PER_TOKEN for text in texts)
    return sum(lengths) // CHARACTERS_PER_TOKEN
