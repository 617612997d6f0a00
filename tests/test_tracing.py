"""Spans arrive at a receiver of OTLP over HTTP on loopback, without a key, and only when asked."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragbench import tracing
from tests.fake_server import FakeServer
from tests.fakes import ScriptedLM
from tests.kills import write_questions

KEY = "sk-live-0123456789abcdef"


class Receiver:
    """A receiver of spans, which parses what collectors parse; `status` is what it answers."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        self.status = 200
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                received.paths.add(self.path)
                received.bodies.append(body)
                received.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(received.status)
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def spans(self) -> list[Any]:
        found = []
        for request in self.requests:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    found += scope.spans
        return found

    @property
    def services(self) -> set[str]:
        services = set()
        for request in self.requests:
            for resource in request.resource_spans:
                services |= {text_of(resource.resource, "service.name")}
        return services


def text_of(holder: Any, name: str) -> str:
    for attribute in holder.attributes:
        if attribute.key == name:
            return str(attribute.value.string_value)
    return ""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver()
    host, port = receiver.http.server_address[:2]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{host}:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-collector=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield receiver
    tracing.stop()
    receiver.http.shutdown()
    receiver.http.server_close()


def run(command: Any, server: FakeServer, *words: str, n: int = 2) -> tuple[int, str, str]:
    data = write_questions(Path("."), n)
    common = ["--lm", "openai/fake", "--api-base", server.url, "--no-cache", "--dataset", "jsonl"]
    return command("eval", "--program", "ircot", *common, "--data-file", data, *words)


@pytest.mark.parametrize("spread", [(), ("--processes", "2")])
def test_each_question_is_a_tree_of_spans_that_ends_in_calls(
    receiver: Receiver, server: FakeServer, command: Any, spread: tuple[str, ...]
) -> None:
    before = dspy.Predict.forward, dspy.Module.__call__, dspy.Adapter.__call__
    assert run(command, server, "--trace", "otlp", "--out", "runs/a", *spread)[0] == 0
    after = dspy.Predict.forward, dspy.Module.__call__, dspy.Adapter.__call__
    assert after == before  # nothing is left behind, and nothing taken away
    assert receiver.paths == {"/v1/traces"}
    assert receiver.services == {"ragbench"}
    spans = {span.span_id: span for span in receiver.spans}
    calls = [span for span in spans.values() if span.name == "RagbenchLM.__call__"]
    assert len(calls) == len(server.hits) >= 2
    traces = {}
    for span in calls:
        above = []
        while span.parent_span_id:
            assert text_of(span, "ragbench.qid")
            span = spans[span.parent_span_id]
            above.append(span.name)
        assert any(name.startswith("Predict") for name in above)
        assert span.name == "IRCoT.forward"
        traces[span.trace_id] = text_of(span, "ragbench.qid")
    assert sorted(traces.values()) == ["q0", "q1"]
    whole = b"".join(receiver.bodies)
    assert b"Which town number" in whole
    assert KEY.encode() not in whole


class Louder(dspy.Predict):
    """A predictor of somebody's own, which is in no module of DSPy's."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return super().forward(**inputs)


def test_no_key_is_in_a_span(receiver: Receiver) -> None:
    error = lm15.InvalidRequestError(f"your key {KEY} is wrong", status=400)
    headers = {"Authorization": "Basic cGFzc3dvcmQ6aGVsbG8="}
    lm = ScriptedLM(lambda _: error, aws_secret_access_key="odd/and-short")
    lm.kwargs["extra_headers"] = headers  # as a plain `dspy.LM` has them
    tracing.start()
    with dspy.context(lm=lm), pytest.raises(dspy.LMError):
        Louder("question -> answer")(question=f"Is {KEY} right?")
    tracing.stop()
    whole = b"".join(receiver.bodies)
    assert b"[OPENAI_API_KEY]" in whole
    for secret in (KEY, "cGFzc3dvcmQ6aGVsbG8", "odd/and-short", "x-collector"):
        assert secret.encode() not in whole, secret


def test_a_collector_that_fails_costs_a_line_and_one_that_is_absent_ends_the_command(
    receiver: Receiver, server: FakeServer, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.status = 400
    code, _, err = run(command, server, "--trace", "otlp", "--out", "runs/a")
    assert code == 0
    assert err.count("spans did not arrive") == 1
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    code, _, err = run(command, server, "--trace", "otlp", "--out", "runs/b")
    assert (code, err.count("\n")) == (2, 1)
    assert "no collector listens at http://127.0.0.1:9" in err
    assert not Path("runs/b").exists()
