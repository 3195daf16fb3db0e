"""Spans of this process, with OpenTelemetry and without."""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from postroom.observe import tracing
from postroom.observe.tracing import INTERNAL, SERVER, current, follow, span, unfollow

pytestmark = pytest.mark.requirement("traces-one")

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.begin(provider)
    yield exporter
    tracing.end()


def test_a_span_lies_below_what_runs_and_what_it_sends_belongs_to_it(
    exporter: InMemorySpanExporter,
) -> None:
    before = follow(CALLER)
    with span("outer", SERVER) as outer, span("inner", INTERNAL, {"n": 1}) as inner:
        assert current() == inner
    assert current() == CALLER
    unfollow(before)

    one, two = exporter.get_finished_spans()
    assert (one.name, two.name) == ("inner", "outer")
    assert one.parent is not None
    assert two.parent is not None
    assert one.parent.span_id == two.context.span_id
    assert f"{two.parent.span_id:016x}" == CALLER.split("-")[2]
    assert outer.split("-")[1] == CALLER.split("-")[1]
    assert dict(one.attributes or {}) == {"n": 1}


def test_an_error_ends_a_span_and_is_said(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), span("broken", INTERNAL):
        raise KeyError
    (found,) = exporter.get_finished_spans()
    assert found.status.status_code is StatusCode.ERROR
    assert current() == ""


def test_a_span_may_be_of_the_past(exporter: InMemorySpanExporter) -> None:
    made = tracing.start("late", INTERNAL, parent="", at=1000.0)
    made.name("named")
    made.end(1001.5)
    (found,) = exporter.get_finished_spans()
    assert (found.name, found.start_time, found.end_time) == ("named", 10**12, 1_001_500_000_000)
    assert found.parent is None


def test_without_opentelemetry_nothing_is_imported_and_the_trace_is_handed_on() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from postroom.observe import tracing
sys.modules.pop("opentelemetry")
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry"):
            raise AssertionError(name)
tracing.importlib.util.find_spec = lambda name: None
sys.meta_path.insert(0, Gone())
tracing.begin()
assert not tracing.enabled()
tracing.follow("x")
with tracing.span("a", "SERVER") as trace:
    assert trace == "x"
tracing.start("b", "SERVER").end()
tracing.end()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_nobody_who_collects_means_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*tracing.ENDPOINTS, tracing.EXPORTER):
        monkeypatch.delenv(name, raising=False)
    tracing.begin()
    assert not tracing.enabled()


def test_the_environment_names_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.EXPORTER, raising=False)
    assert tracing.exporter_named() == ""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert tracing.exporter_named() == "otlp"
    monkeypatch.setenv(tracing.EXPORTER, "console")
    assert tracing.exporter_named() == "console"
    monkeypatch.setenv(tracing.EXPORTER, "none")
    assert tracing.exporter_named() == ""


@pytest.mark.parametrize(
    "variables, installed, chosen",
    [
        ({}, {"otlp", "otlp_proto_grpc", "otlp_proto_http"}, "otlp"),
        ({}, {"otlp_proto_http"}, "otlp_proto_http"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"otlp", "otlp_proto_grpc"}, "otlp_proto_grpc"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            {"otlp", "otlp_proto_grpc", "otlp_proto_http"},
            "otlp_proto_http",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            {"otlp", "otlp_proto_http"},
            "otlp_proto_http",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, {"otlp", "otlp_proto_grpc"}, None),
    ],
)
def test_the_environment_names_the_protocol_of_otlp(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], installed: set[str], chosen: str
) -> None:
    for name in tracing.OTLP_PROTOCOLS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    points = EntryPoints(EntryPoint(name, "x:y", tracing.EXPORTERS) for name in sorted(installed))
    monkeypatch.setattr(tracing.importlib.metadata, "entry_points", lambda **_: points)

    found = [each.name for each in tracing._exporters("otlp")]

    assert found[:1] == ([chosen] if chosen else [])


def test_a_span_that_nobody_wants_costs_less_than_a_microsecond() -> None:
    def nothing() -> None:
        with span("x", INTERNAL):
            pass

    assert min(timeit.repeat(nothing, number=20_000, repeat=5)) / 20_000 < 1e-6
