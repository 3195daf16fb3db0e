"""A worker's rights to publish and subscribe, made quick to ask. Pure.

The server checks the same again (docs/architecture.md, Identity and trust): this is the first of two walls, and the
one that records each attempt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from postroom.gateway.connection import BEAT, PULL
from postroom.protocol.limits import MAX_SUBJECT
from postroom.protocol.permissions import NAME_TEMPLATE, agent_permissions, allows, matches
from postroom.protocol.streams import STREAMS

KEPT = 1024
"""Subjects whose result is remembered."""

MAX_QUEUE = 64

_TOKEN = rb"[!-)+,\-/-=?-~]+"  # printable, without space, dot and wildcards
_STORED = tuple(subject for stream in STREAMS for subject in stream.subjects)
_INTEREST = re.compile(rb"(?:%b|\*)(?:\.(?:%b|\*))*(?:\.>)?" % (_TOKEN, _TOKEN))
_QUIET = rb"[!#-)+,\-/-=?-\[\]-~]+"  # a token without what JSON would escape
_REACHES = re.compile(rb"worker\.([0-9a-f]{32})\.(?:inbox|rpc)\.[^.]+").fullmatch
_LAST = re.compile(_QUIET).fullmatch
_PLAIN = re.compile(rb"[ !#-\[\]-~]*").fullmatch
_QUEUE = re.compile(rb"[!-)+,\-./0-=?-~]+")


def quoted(text: bytes) -> bytes:
    """`text` as it stands between the quotes of a JSON string."""
    if _PLAIN(text):
        return text
    return json.dumps(text.decode("utf-8", "backslashreplace"))[1:-1].encode()


class Right:
    """A subject that the worker may publish.

    Attributes:
        said: the subject as it stands in JSON; b"" if JSON escapes nothing in it.
        stored: whether a stream stores what is published on it.
        task, state: of a record of a task, else "".
        extra: further fields of its audit records, as JSON that begins with a comma.
        to: uid of another agent that it reaches, in its inbox or at once; else "".
        plumbing: kind of plumbing (`gateway.connection`); "" for a frame with a line of its own.
    """

    __slots__ = ("extra", "plumbing", "said", "state", "stored", "task", "to")

    def __init__(self, subject: bytes = b"", *, stored: bool = False, tasks: bool = False) -> None:
        self.said = quoted(subject)
        self.stored = stored
        self.task = self.state = ""
        self.extra = b""
        self.plumbing = _plumbing(subject)
        found = _REACHES(subject)
        self.to = found[1].decode("ascii") if found else ""
        if tasks:
            self.task, _, self.state = subject.decode("ascii").split(".", 3)[3].partition(".")
            self.extra = b',"task":"%b"' % quoted(self.task.encode())


def _plumbing(subject: bytes) -> str:
    if subject.startswith(b"$JS.API.CONSUMER.MSG.NEXT."):
        return PULL
    tokens = subject.split(b".")
    beat = tokens[:2] == [b"system", b"discovery"] or (tokens[0], tokens[2:]) == (
        b"worker",
        [b"status"],
    )
    return BEAT if beat else ""


_UNIQUE = Right()

Allowed = Callable[[bytes], object]
"""Decides about a subject; None for no."""


class _Answers:
    """Subjects for answers. Their last token is new each time, so this remembers the part before it.

    Args:
        allowed: decides about the subject; if one last token is allowed, all are.
    """

    def __init__(self, own: bytes, allowed: Allowed) -> None:
        self._own = own
        self._allowed = allowed
        self._stems: set[bytes] = set()

    def match(self, subject: bytes) -> bool:
        """Whether the subject is allowed and needs no JSON escape."""
        last = subject.rfind(b".") + 1
        if subject[:last] in self._stems and _LAST(subject, last):
            return True
        if not self._allowed(self._own + subject):
            return False
        if len(self._stems) >= KEPT:
            self._stems.clear()
        self._stems.add(subject[:last])
        return True


class Rights:
    """The rights of worker `own` in `projects`."""

    def __init__(self, own: str, projects: tuple[str, ...]) -> None:
        self._own = own.encode() + b" "
        self._expressions = _expressions(projects)
        self._answers = _Answers(self._own, self._expressions.answers)
        self._mailbox = _Answers(self._own, self._expressions.mailbox)
        self._subscribe = agent_permissions(own, projects).subscribe
        self._tasks = f"worker.{own}.tasks.".encode()
        self._known: dict[bytes, Right] = {}

    def publish(self, subject: bytes) -> Right | None:
        """The right to publish `subject`; None without it."""
        known = self._known.get(subject)
        if known is not None:
            return known
        if len(subject) > MAX_SUBJECT:
            return None
        # These have a new subject each time: remembering them would push out the others.
        named = self._own + subject
        if self._answers.match(subject) or self._expressions.acks(named):
            return _UNIQUE
        stored = self._expressions.stored(named) is not None
        if not stored and not self._expressions.passing(named):
            return None
        right = Right(subject, stored=stored, tasks=subject.startswith(self._tasks))
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[subject] = right
        return right

    def answered_at(self, reply: bytes) -> bool:
        """Whether the worker may name `reply` as the subject for an answer."""
        return len(reply) <= MAX_SUBJECT and (
            self._mailbox.match(reply)
            or self._expressions.odd_mailbox(self._own + reply) is not None
        )

    def subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Whether the worker may subscribe to `subject`, with or without wildcards, in `queue` ("" for no group)."""
        if len(subject) > MAX_SUBJECT or not _INTEREST.fullmatch(subject):
            return False
        if queue and (len(queue) > MAX_QUEUE or not _QUEUE.fullmatch(queue)):
            return False
        wanted = subject.decode("ascii")
        return any(_covers(pattern, wanted) for pattern in self._subscribe)


def _is_stored(pattern: str) -> bool:
    example = pattern.replace("*", "x").replace(">", "x.x")
    return allows(_STORED, example)


@dataclass(frozen=True, slots=True)
class _Expressions:
    """The rights of any agent as expressions; each is asked for `<own uid> <subject>`.

    Attributes:
        stored: subjects to publish that a stream stores.
        passing: subjects to publish that no stream stores.
        acks, answers: those of them for acknowledgements and answers, without what JSON would escape.
        mailbox: subjects where answers may come, without what JSON would escape.
        odd_mailbox: subjects where answers may come.
    """

    stored: Allowed
    passing: Allowed
    acks: Allowed
    answers: Allowed
    mailbox: Allowed
    odd_mailbox: Allowed


@lru_cache(maxsize=256)
def _expressions(projects: tuple[str, ...]) -> _Expressions:
    """For all workers of the same projects: compiling takes longer than the rest of a connection's start."""
    granted = agent_permissions(NAME_TEMPLATE, projects).publish
    stored = [pattern for pattern in granted if _is_stored(pattern)]
    passing = [pattern for pattern in granted if not _is_stored(pattern)]
    mailbox = [f"_I.{NAME_TEMPLATE}.>"]
    return _Expressions(
        _compile(stored),
        _compile(passing),
        _compile([pattern for pattern in passing if pattern.startswith("$JS.ACK.")], _QUIET),
        _compile([pattern for pattern in passing if pattern.startswith("_I.")], _QUIET),
        _compile(mailbox, _QUIET),
        _compile(mailbox),
    )


def _compile(patterns: list[str], one: bytes = _TOKEN) -> Allowed:
    def expression(pattern: str) -> bytes:
        return rb"\.".join(
            rb"%b(?:\.%b)*" % (one, one)
            if token == ">"
            else one
            if token == "*"
            else b"(?P=own)"
            if token == NAME_TEMPLATE
            else re.escape(token.encode("ascii"))
            for token in pattern.split(".")
        )

    each = b"|".join(map(expression, patterns)) or b"(?!)"
    return re.compile(b"(?P<own>[0-9a-f]+) (?:%b)" % each).fullmatch


def _covers(pattern: str, wanted: str) -> bool:
    """Whether every subject that `wanted` matches is matched by `pattern`."""
    tokens = wanted.split(".")
    if tokens[-1] == ">" and not pattern.endswith(">"):
        return False
    allowed = pattern.split(".")
    literal = all(
        token not in {"*", ">"} or need in {"*", ">"}
        for need, token in zip(allowed, tokens, strict=False)
    )
    if not literal:
        return False
    return matches(pattern, wanted)
