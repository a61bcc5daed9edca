"""Processor time of a request's spans, with the SDK's batches of them and an exporter that drops them.

PYTHONPATH=.src python -m greenroom.notes.tracing_cost
"""

from __future__ import annotations

import time

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from greenroom.actors.records.tracing import begin_span, follow_program
from greenroom.schemas.events.events import Finished, Timing, Usage
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey

REQUESTS = 5_000


class Dropping:
    def export(self, spans: object) -> object:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    trace.set_tracer_provider(provider)
    follow_program(content=False)
    request = InferenceRequest(
        "req", ModelKey("default"), ChatInput((Message("user", (TextPart("Hello!"),)),))
    )
    last = Finished("stop", Usage(10, 100), Timing(0.01, 0.02, 0.5))
    began = time.process_time()
    for _ in range(REQUESTS):
        span = begin_span(request)
        assert span is not None
        span.found()
        span.admitted()
        span.granted()
        span.end(last, "org/name", last.usage)
    print(
        f"{(time.process_time() - began) / REQUESTS * 1e3:.3f} ms a request, its export in batches included"
    )


if __name__ == "__main__":
    main()
