"""The subjects that each credential may publish and subscribe, and the imports between the two accounts.

Pure functions that the minter turns into JWT claims, tested as a table and against the running server
(docs/architecture.md, Identity and trust). `allow_responses` is never used: it would let an agent publish to any
reply subject in a message to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS

NAME_TEMPLATE = "{{name()}}"
"""The server puts the name of the user's JWT here; the minter has checked that it is a uid."""

PROJECT_TEMPLATE = "{{tag(project)}}"
"""The server puts each `project:<id>` tag of the user's JWT here, one subject per tag."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects that a credential may publish and subscribe; everything else is denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """A service that the core account offers to the edge account.

    Attributes:
        stream_response: the answer may be many messages (pulls, control answers), not exactly one.
        share: requests carry the client's identity (`Nats-Request-Info`); costs CPU, so only where it is
            needed.
    """

    subject: str
    stream_response: bool = False
    share: bool = False


def agent_permissions(
    own: str = NAME_TEMPLATE, projects: tuple[str, ...] = (PROJECT_TEMPLATE,)
) -> Permissions:
    """Rights of an agent on the edge account.

    Args:
        own: the agent's uid, or the template that the server fills in.
        projects: projects it may post to, or the template that the server fills in.
    """
    publish = [
        # Not the priority lane: the control plane alone writes there, for authorised agents
        # (`ctl.<own>.tasks.cancel`). It is one bounded stream that nobody reads in advance, so a flood would delay
        # everybody's cancel.
        subjects.inbox("*", own),
        subjects.rpc("*", own),
        subjects.outbox(own),
        subjects.status(own),
        f"worker.{own}.tasks.>",
        subjects.receipts("*", own),
        *(subjects.feed(project, own) for project in projects),
        subjects.alerts(own),
        subjects.discovery(own),
        subjects.ctl(own, ">"),
        f"_I.*.{own}.>",
    ]
    for stream in AGENT_CONSUMER_STREAMS:
        publish.append(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{own}")
        publish.append(f"$JS.ACK.{stream}.{own}.>")
    return Permissions(
        tuple(publish),
        (f"_I.{own}.>", f"worker.{own}.rpc.>", "system.discovery.>"),
    )


def control_plane_edge_permissions() -> Permissions:
    """Rights of the control plane's user on the edge account (its uid is reserved).

    A publish in core does not reach edge, so live messages to agents (feed, discovery, rpc) are published here.
    """
    own = CONTROL_PLANE
    return Permissions(
        (subjects.rpc("*", own), subjects.feed("*", own), subjects.discovery(own), f"_I.*.{own}.>"),
        (f"_I.{own}.>", "system.discovery.>"),
    )


def core_exports() -> tuple[Export, ...]:
    """Services that core exports and edge imports under the same subject.

    `rpc`, `_I`, any other `$JS`, `$KV` and `$O` are never among them.
    """
    stored = (
        "worker.*.inbox.*",
        "worker.*.outbox",
        "worker.*.status",
        "worker.*.receipts.*",
        "worker.*.tasks.>",
        "project.*.feed.*",
        "system.alerts.*",
        "system.discovery.*",
    )
    exports = [Export(subject) for subject in stored]
    for stream in AGENT_CONSUMER_STREAMS:
        exports.append(Export(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*", stream_response=True))
        exports.append(Export(f"$JS.ACK.{stream}.>"))
    exports.append(Export("ctl.*.>", stream_response=True, share=True))
    return tuple(exports)


def allows(patterns: tuple[str, ...], subject: str) -> bool:
    """Whether a literal `subject` matches one of `patterns` (`*` one token, `>` one or more)."""
    return any(matches(pattern, subject) for pattern in patterns)


def matches(pattern: str, subject: str) -> bool:
    """Whether a literal `subject` matches `pattern` by the NATS wildcard rule."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
