"""The ratios that say how our binding does beside the others; those whose contenders did not run are left out."""

from __future__ import annotations

from benchmarks.a2a.contenders import Work
from benchmarks.a2a.findings import BUS, CLIENT, FIRST_P50, P50, RATE, SERVER, Findings
from benchmarks.report import Sheet

_MESSAGE = {each: Work("message", 200, each) for each in (1, 16, 64)}
_TASK = {each: Work("task", 200, each) for each in (16, 64)}
_STREAM = Work("stream", 200, 1)

_RATIOS = (
    # "own": on the binding's own connection. Ratio, ours, the other, work, measure, target.
    ("product, calls/s, Message, 16", "nats-ours", "jsonrpc-sdk", _MESSAGE[16], RATE, ">= 10"),
    ("product, calls/s, Message, 64", "nats-ours", "jsonrpc-sdk", _MESSAGE[64], RATE, ">= 10"),
    ("product, calls/s, Task, 16", "nats-ours", "jsonrpc-sdk", _TASK[16], RATE, ">= 10"),
    ("product, calls/s, Task, 64", "nats-ours", "jsonrpc-sdk", _TASK[64], RATE, ">= 10"),
    ("product, p50, Message, 1", "nats-ours", "jsonrpc-sdk", _MESSAGE[1], P50, "<= 0.2"),
    ("product, first event p50, 1", "nats-ours", "jsonrpc-sdk", _STREAM, FIRST_P50, ""),
    ("transport, NATS/gRPC, 16", "nats-trivial", "grpc-trivial", _MESSAGE[16], RATE, ">= 2.5"),
    ("transport, NATS/gRPC, 64", "nats-trivial", "grpc-trivial", _MESSAGE[64], RATE, ">= 2.5"),
    ("transport, NATS/bare, 16", "nats-trivial", "jsonrpc-bare-trivial", _MESSAGE[16], RATE, ">= 2.5"),
    ("transport, NATS/bare, 64", "nats-trivial", "jsonrpc-bare-trivial", _MESSAGE[64], RATE, ">= 2.5"),
    ("transport, NATS/JSON-RPC, 64", "nats-trivial", "jsonrpc-trivial", _MESSAGE[64], RATE, ""),
    *(
        (f"{title} / TypeScript on Node, {each}", name, "typescript-trivial", _MESSAGE[each], RATE, "")
        for title, name in (("own, NATS", "nats-fast-trivial"), ("own, NATS JSON", "nats-json-fast-trivial"))
        for each in _MESSAGE
    ),
    ("NATS trivial / raw request, 64", "nats-trivial", "raw-nats", _MESSAGE[64], RATE, ">= 0.3"),
    ("NATS+JS trivial / raw publishes, 1", "nats-js-trivial", "raw-jetstream", _MESSAGE[1], RATE, ">= 0.5"),
    ("NATS+JS trivial / raw publishes, 16", "nats-js-trivial", "raw-jetstream", _MESSAGE[16], RATE, ">= 0.5"),
    ("NATS+JS trivial / raw publishes, 64", "nats-js-trivial", "raw-jetstream", _MESSAGE[64], RATE, ">= 0.5"),
    ("own, NATS / raw request, 64", "nats-fast-trivial", "raw-nats", _MESSAGE[64], RATE, ">= 0.3"),
    ("own, NATS+JS / raw publishes, 1", "nats-js-fast-trivial", "raw-jetstream", _MESSAGE[1], RATE, ">= 0.5"),
    ("own, NATS+JS / raw publishes, 16", "nats-js-fast-trivial", "raw-jetstream", _MESSAGE[16], RATE, ">= 0.5"),
    ("own, NATS+JS / raw publishes, 64", "nats-js-fast-trivial", "raw-jetstream", _MESSAGE[64], RATE, ">= 0.5"),
)  # fmt: skip

CPU_TARGET = "<= 400"
"""Microseconds that client and server may spend on one call, 64 at a time."""


def tell(sheet: Sheet, findings: Findings) -> None:
    """Write the ratios and the sums down."""
    for title, ours, other, work, measure, target in _RATIOS:
        above, below = (findings.values(name, work, measure) for name in (ours, other))
        if above and len(above) == len(below):
            sheet.compare(f"{title} ({target})" if target else title, above, below)
    for name in (
        "nats-ours",
        "nats-trivial",
        "nats-fast-trivial",
        "nats-json-trivial",
        "nats-js-trivial",
        "nats-js-fast-trivial",
    ):
        spent = findings.values(name, _MESSAGE[64], CLIENT, SERVER)
        if spent:
            sheet.add(f"{name}, Message, 64: CPU of both ({CPU_TARGET})", spent, "µs")
            bus = findings.values(name, _MESSAGE[64], BUS)
            sheet.add(f"{name}, Message, 64: nats-server", bus, "µs")
