"""Traces of this process through OpenTelemetry's API, the extra `otel`.

Without it, or before `begin`, a span is nothing, costs next to nothing, and the trace that a caller names is handed on
as it came. With it `span` makes one, and what is sent within it belongs to it.

    with span("publish", PRODUCER, {"postroom.kind": "task"}) as trace:
        ...                                # trace: its `traceparent`

The SDK and an exporter are the operator's to install. Where they are, and the environment names an exporter as
OpenTelemetry specifies it (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_EXPORTER`), `begin` sets them up.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol

from postroom.observe import get_logger
from postroom.protocol.traces import TRACEPARENT

log = get_logger(__name__)

SERVER, PRODUCER, CONSUMER, INTERNAL = "SERVER", "PRODUCER", "CONSUMER", "INTERNAL"
"""Kinds of a span, as OpenTelemetry names them."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"
EXPORTERS = "opentelemetry_traces_exporter"
"""Group of entry points in which exporters are found by their name."""

PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
"""Names a provider that OpenTelemetry's API loads."""

OTLP = "otlp"
OTLP_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OTLP_EXPORTERS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""Names under which the packages of OpenTelemetry have the protocols that its specification names."""

Attributes = Mapping[str, str | int]

_trace: ContextVar[str] = ContextVar("trace", default="")


def current() -> str:
    """The `traceparent` of what runs now, "" for none."""
    return _trace.get()


def follow(trace: str) -> Token[str]:
    """Run on as a part of that trace; for a request whose caller named it."""
    return _trace.set(trace)


def unfollow(before: Token[str]) -> None:
    """End what `follow` began."""
    _trace.reset(before)


@contextmanager
def within(trace: str) -> Generator[None]:
    """A block that is a part of that trace; "" for none."""
    before = follow(trace)
    try:
        yield
    finally:
        unfollow(before)


class Span(Protocol):
    """A span that its maker ends.

    Attributes:
        trace: its `traceparent`.
    """

    trace: str

    def name(self, name: str) -> None:
        """Give it a name that was not known at its start."""

    def note(self, attributes: Attributes) -> None:
        """Say more of it."""

    def end(self, at: float | None = None, fault: str = "") -> None:
        """End it, now or at an instant; `fault` says why it went wrong."""


class _Nothing:
    """No span: what runs belongs to the trace that it belonged to."""

    trace = ""

    def name(self, name: str) -> None:
        pass

    def note(self, attributes: Attributes) -> None:
        pass

    def end(self, at: float | None = None, fault: str = "") -> None:
        pass


class _Real:
    """A span of OpenTelemetry."""

    __slots__ = ("_span", "trace")

    def __init__(self, made: Any, trace: str) -> None:
        self._span = made
        self.trace = trace

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))

    def end(self, at: float | None = None, fault: str = "") -> None:
        if fault:
            status = importlib.import_module("opentelemetry.trace")
            self._span.set_status(status.Status(status.StatusCode.ERROR, fault))
        self._span.end(None if at is None else int(at * 1e9))


class _Tracer:
    """Makes spans by OpenTelemetry's API."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self._api = importlib.import_module("opentelemetry.trace")
        context = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        self._propagator = context.TraceContextTextMapPropagator()
        self._tracer = self._api.get_tracer("postroom", tracer_provider=provider)

    def start(
        self, name: str, kind: str, parent: str, attributes: Attributes, at: float | None
    ) -> Span:
        context = self._propagator.extract({TRACEPARENT: parent} if parent else {}, _empty())
        made = self._tracer.start_span(
            name,
            context=context,
            kind=self._api.SpanKind[kind],
            attributes=dict(attributes),
            start_time=None if at is None else int(at * 1e9),
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._api.set_span_in_context(made, _empty()))
        return _Real(made, carrier.get(TRACEPARENT, ""))


def _empty() -> Any:
    return importlib.import_module("opentelemetry.context").Context()


_NOTHING = _Nothing()
_tracer: _Tracer | None = None


def enabled() -> bool:
    """Whether spans are made."""
    return _tracer is not None


def start(
    name: str,
    kind: str,
    attributes: Attributes | None = None,
    *,
    parent: str | None = None,
    at: float | None = None,
) -> Span:
    """Start a span, which the caller ends.

    Args:
        parent: the `traceparent` above it, "" for none; None for that of what runs now.
        at: instant of its start; None for now.
    """
    if _tracer is None:
        return _NOTHING
    return _tracer.start(name, kind, current() if parent is None else parent, attributes or {}, at)


class _Scope:
    """A span around a block."""

    __slots__ = ("_before", "_span")

    def __init__(self, made: Span) -> None:
        self._span = made

    def __enter__(self) -> str:
        self._before = follow(self._span.trace)
        return self._span.trace

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unfollow(self._before)
        self._span.end(fault="" if kind is None else kind.__name__)


class _NoScope:
    """No span around a block."""

    __slots__ = ()

    def __enter__(self) -> str:
        return current()

    def __exit__(self, *_: object) -> None:
        pass


_NO_SCOPE = _NoScope()


def span(name: str, kind: str, attributes: Attributes | None = None) -> _Scope | _NoScope:
    """A span around a block, below what runs now; the block gets the `traceparent` for what it sends."""
    return _NO_SCOPE if _tracer is None else _Scope(start(name, kind, attributes))


# ── beginning ───────────────────────────────────────────────────────────────────────────────────────────────


def begin(provider: Any = None) -> None:
    """Make spans from now on, if OpenTelemetry is installed; by `provider`, or by that of the process if it has one."""
    global _tracer  # noqa: PLW0603 (OpenTelemetry's own provider is one for the process, too)
    if importlib.util.find_spec("opentelemetry") is None:
        if exporter_named():
            log.warning("traces are asked for and not made: install postroom[otel]")
        return
    if provider is None:
        provider = _provider()
    if provider is not None:
        _tracer = _Tracer(provider)


def end() -> None:
    """Make no more spans; what was made is on its way."""
    global _tracer
    tracer, _tracer = _tracer, None
    flush = getattr(tracer.provider, "force_flush", None) if tracer is not None else None
    if flush is not None:
        flush()


def exporter_named() -> str:
    """The name of the exporter that the environment asks for, "" for none."""
    named = os.environ.get(EXPORTER, "")
    if not named and any(os.environ.get(each) for each in ENDPOINTS):
        named = OTLP
    return "" if named == "none" else named.partition(",")[0].strip()


def _exporters(named: str) -> list[importlib.metadata.EntryPoint]:
    """The exporters that are meant by a name, the best one first.

    `otlp` is that of the protocol which the environment names; where it names none, whichever is installed.
    """
    names: tuple[str, ...] = (named,)
    if named == OTLP:
        protocol = next(filter(None, map(os.environ.get, OTLP_PROTOCOLS)), "")
        names = (
            (OTLP_EXPORTERS.get(protocol, protocol),)
            if protocol
            else (OTLP, *OTLP_EXPORTERS.values())
        )
    found = importlib.metadata.entry_points(group=EXPORTERS)
    return [each for name in names for each in found if each.name == name]


def _provider() -> Any:
    """The provider of the process, such as `opentelemetry-instrument` sets it, or one as the environment asks for it.

    None where nobody would see a span. What we set up is ours alone: libraries that make spans of their own (FastAPI
    makes three for a request) would otherwise fill the traces.
    """
    named = exporter_named()
    if not named and PROVIDER not in os.environ and "opentelemetry.trace" not in sys.modules:
        return None  # nobody can have set one; the import takes a moment
    api = importlib.import_module("opentelemetry.trace")
    if not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return api.get_tracer_provider()
    if not named:
        return None
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
    except ImportError:
        log.warning("traces are asked for and not made: install opentelemetry-sdk")
        return None
    found = _exporters(named)
    if not found:
        log.warning("traces are asked for and not made: no package has the exporter %r", named)
        return None
    resource = resources.Resource.create({"service.name": "postroom"})
    if os.environ.get("OTEL_SERVICE_NAME"):
        resource = resources.Resource.create()
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(found[0].load()()))
    log.info("traces go to the exporter %r", named)
    return provider
