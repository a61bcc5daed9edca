"""Export of spans over OTLP, as the variables `OTEL_*` say, by the SDK of the extra `otel`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version

from greenroom.schemas.logs import get_logger

_SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_FLUSH_SECONDS = 2.0  # For the last spans at the end of the process

log = get_logger(actor="http")


def start_exporting(environment: Mapping[str, str]) -> Callable[[], None]:
    """Export this process's spans if a variable asks for it, and return the function to call at its end."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    is_off = exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_off or not any(environment.get(name) for name in _SWITCHES):
        return lambda: None
    if exporter != "otlp":
        log.warning("no spans are exported", reason=f"OTEL_TRACES_EXPORTER is {exporter!r}, not otlp")
        return lambda: None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning(
            "no spans are exported", reason="OTEL_* is set without the extra `otel`", instead="install it"
        )
        return lambda: None
    own = {"service.version": version("greenroom")}
    if "OTEL_SERVICE_NAME" not in environment:
        own["service.name"] = "greenroom"
    provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

    def end() -> None:
        # A collector that does not answer must not hold the end of the process.
        flushing = threading.Thread(target=provider.shutdown, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_SECONDS)

    return end
