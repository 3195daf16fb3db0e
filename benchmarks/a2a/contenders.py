"""Who takes part, and in what."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.a2a.environment import MAIN, NODE, SLIM

FLOOR, OWN, SDK, TRIVIAL = (
    "floors",
    "product against product: own handler, own client",
    "the SDK's handler behind other transports and clients",
    "transport against transport: the same trivial handler",
)
"""Groups of the table, in its order."""


TYPESCRIPT = "typescript"
"""The kind that is no module of ours: a pair on Node that speaks our JSON wire, `a2a-nats/1`."""


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that is measured.

    Attributes:
        name: "message", "task" or "stream".
        size: bytes of the text.
        concurrency: calls under way at a time.
    """

    name: str
    size: int
    concurrency: int

    @property
    def title(self) -> str:
        """What is done, for the table."""
        size = f"{self.size // 1000} kB" if self.size >= 1000 else f"{self.size} B"
        what = {"message": "Message", "task": "Task", "stream": "stream of four events"}[self.name]
        return f"{what}, {size}"

    @property
    def key(self) -> str:
        """What is done, and how many at a time."""
        return f"{self.title}, {self.concurrency} at a time"


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the table.

    Attributes:
        kind: key of `peers.kinds.MODULES`, or `TYPESCRIPT`.
        handler: "trivial", "sdk", "ours", or "" where there is none.
        title: unique.
        group: one of those above.
        part: name of the file of pins that it needs besides the SDK's.
        bus: "nats", "slim", or "" for none.
        works: names of the works that it can do.
    """

    kind: str
    handler: str
    title: str
    group: str
    part: str = ""
    bus: str = ""
    works: tuple[str, ...] = ("message", "task", "stream")

    @property
    def name(self) -> str:
        """Unique, for subjects and files."""
        return f"{self.kind}-{self.handler}" if self.handler else self.kind

    @property
    def environment(self) -> str:
        """Where it runs."""
        if self.kind == TYPESCRIPT:
            return NODE
        return SLIM if self.bus == "slim" else MAIN


_UNARY = ("message", "task")
_OURS = (("nats", "NATS"), ("nats-json", "NATS JSON"), ("nats-js", "NATS+JS"))
_FAST = (
    ("nats-fast", "NATS, own connection"),
    ("nats-json-fast", "NATS JSON, own conn."),
    ("nats-js-fast", "NATS+JS, own connection"),
)
_OFFICIAL = (("jsonrpc", "JSON-RPC", ""), ("rest", "REST", ""), ("grpc", "gRPC", "grpc"))

CONTENDERS = (
    Contender("raw-nats", "", "nats-py request/reply", FLOOR, bus="nats", works=("message",)),
    Contender(
        "raw-jetstream", "", "two publishes, JetStream", FLOOR, bus="nats", works=("message",)
    ),
    *(Contender(kind, "ours", f"{name}, ours", OWN, bus="nats") for kind, name in _OURS),
    *(Contender(kind, "sdk", f"{name}, SDK", OWN, part) for kind, name, part in _OFFICIAL),
    Contender("slim", "sdk", "SLIM, SDK", OWN, "slim", bus="slim"),
    Contender(TYPESCRIPT, "sdk", "NATS JSON, TypeScript, SDK", OWN, "typescript", bus="nats"),
    Contender(
        "synadia",
        "",
        "Synadia agents (no A2A)",
        OWN,
        "synadia",
        bus="nats",
        works=("message", "stream"),
    ),
    *(
        Contender(kind, "sdk", f"{name}, SDK", SDK, bus="nats", works=_UNARY)
        for kind, name in (_OURS[0], _OURS[2])
    ),
    Contender("jsonrpc-bare", "sdk", "JSON-RPC bare client, SDK", SDK, works=_UNARY),
    *(
        Contender(kind, "trivial", f"{name}, trivial", TRIVIAL, bus="nats")
        for kind, name in (*_OURS, *_FAST)
    ),
    *(
        Contender(kind, "trivial", f"{name}, trivial", TRIVIAL, part)
        for kind, name, part in _OFFICIAL
    ),
    Contender("jsonrpc-bare", "trivial", "JSON-RPC bare client, trivial", TRIVIAL, works=_UNARY),
    Contender("slim", "trivial", "SLIM, trivial", TRIVIAL, "slim", bus="slim"),
    Contender(
        TYPESCRIPT, "trivial", "NATS JSON, TypeScript, trivial", TRIVIAL, "typescript", bus="nats"
    ),
)
