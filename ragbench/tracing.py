"""`--trace otlp`: spans of each question, prompt and call, sent to a collector of OpenTelemetry.

DSPy's instrumentation is OpenInference's. Where the collector is, and what it wants, is said by the
variables of OpenTelemetry, such as `OTEL_EXPORTER_OTLP_ENDPOINT`. What is added here: the id of the
question and the run's service name, and that no key leaves in a span. Without the option none of it
is imported.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from ragbench.context import current
from ragbench.errors import ConfigError, needs_extra
from ragbench.logs import get
from ragbench.redact import each_text, is_secret, redact

KINDS = ("otlp",)
#: Seconds to reach the collector before anything is asked.
_REACH_S = 3.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_log = get(__name__)

#: What `stop` undoes, while spans are sent.
_running: list[Any] = []


def start() -> None:
    """Send spans from now on, until `stop` or the end of the process.

    Raises:
        MissingExtraError: the extra `otlp` is not installed.
        ConfigError: nothing listens where the collector should be.
    """
    if _running:
        return
    with needs_extra("--trace otlp"):
        from openinference.instrumentation.dspy import DSPyInstrumentor
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    _check_collector()

    class Questions(SpanProcessor):
        """Says of each span which question and which call of a program it is of."""

        def on_start(self, span: Span, parent_context: Any = None) -> None:
            context = current()
            if context.qid is not None:
                span.set_attribute("ragbench.qid", context.qid)
            if context.caller is not None:
                span.set_attribute("ragbench.role", context.caller[1])

    class WithoutKeys(OTLPSpanExporter):
        """Sends spans from which keys were taken."""

        warned = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(list(map(_without_keys, spans)))
            if result is not SpanExportResult.SUCCESS and not self.warned:
                self.warned = True
                _log.warning("spans did not arrive at the collector; the run goes on")
            return result

    restored: list[Any] = []

    class Instrumentor(DSPyInstrumentor):
        """Wraps what DSPy has; it looks there for a person's subclasses of Predict as well.

        What it takes off again at the end is more than it put on: DSPy's callbacks too.
        """

        def _wrap_object(self, module: str, name: str, *args: Any, **options: Any) -> None:
            kind, _, method = name.partition(".")
            owner = getattr(import_module(module), kind, None)
            if owner is not None:
                restored.insert(0, partial(_put_back, owner, method, vars(owner).get(method)))
                super()._wrap_object(module, name, *args, **options)

    os.environ.setdefault("OTEL_SERVICE_NAME", "ragbench")
    provider = TracerProvider(resource=Resource.create(), shutdown_on_exit=False)
    provider.add_span_processor(Questions())
    provider.add_span_processor(BatchSpanProcessor(WithoutKeys()))
    instrumentor = Instrumentor()
    instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    _running.extend((instrumentor.uninstrument, provider.shutdown, *restored))
    atexit.register(stop)


def _put_back(owner: type, method: str, function: Any) -> None:
    if function is not None:
        setattr(owner, method, function)
    elif method in vars(owner):
        delattr(owner, method)


def is_running() -> bool:
    """Returns whether spans are sent."""
    return bool(_running)


def stop() -> None:
    """Send what is left, and no more spans."""
    for end in _running:
        end()
    _running.clear()


def _check_collector() -> None:
    address = "http://localhost:4318"
    for name in reversed(_ENDPOINTS):
        address = os.environ.get(name) or address
    try:
        place = urlsplit(address)
        port = place.port or {"https": 443}.get(place.scheme, 80)
        socket.create_connection((place.hostname or "", port), _REACH_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--trace otlp: no collector listens at {redact(address)} ({error}); start one, or set "
            f"{_ENDPOINTS[1]}"
        ) from None


def _without_keys(span: Any) -> Any:
    """Returns a copy of the span in whose texts no key is left."""
    from opentelemetry.sdk.trace import Event, ReadableSpan

    events = []
    for event in span.events:
        attributes = each_text(_redacted, event.attributes or {})
        events.append(Event(event.name, attributes, event.timestamp))
    why = redact(span.status.description or "")
    status = type(span.status)(span.status.status_code, why or None)
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=each_text(_redacted, span.attributes or {}),
        events=events,
        links=span.links,
        kind=span.kind,
        status=status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _redacted(text: str) -> str:
    """Returns `text` without keys, and JSON without values that are called so, or are headers."""
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            settings = json.loads(text)
            allowed = _allowed(settings)
            if allowed != settings:
                text = json.dumps(allowed, ensure_ascii=False)
    return redact(text)


def _allowed(value: Any) -> Any:
    if isinstance(value, Mapping):
        allowed = {}
        for name, inner in value.items():
            if is_secret(f"_{name}") or "header" in str(name).lower():
                allowed[name] = "[key]"
            else:
                allowed[name] = _allowed(inner)
        return allowed
    if isinstance(value, list):
        return list(map(_allowed, value))
    return value
