"""What one worker may publish and subscribe, made quick to ask. Pure.

The server checks the same again (docs/architecture.md, Identity and trust): this is the first of two walls, and the
one that records who tried.
"""

from __future__ import annotations

import json
import re

from postroom.protocol.permissions import agent_permissions, allows, matches
from postroom.protocol.streams import STREAMS

KEPT = 1024
"""Subjects whose verdict is remembered."""

MAX_SUBJECT = 512
MAX_QUEUE = 64

_TOKEN = rb"[!-)+,\-/-=?-~]+"  # printable, without space, dot and wildcards
_STORED = tuple(subject for stream in STREAMS for subject in stream.subjects)
_INTEREST = re.compile(rb"(?:%b|\*)(?:\.(?:%b|\*))*(?:\.>)?" % (_TOKEN, _TOKEN))
_QUIET = rb"[!#-)+,\-/-=?-\[\]-~]+"  # a token without what JSON would escape
_LAST = re.compile(_QUIET).fullmatch
_PLAIN = re.compile(rb"[ !#-\[\]-~]*").fullmatch
_QUEUE = re.compile(rb"[!-)+,\-./0-=?-~]+")


def quoted(text: bytes) -> bytes:
    """`text` as it stands between the quotes of a JSON string."""
    if _PLAIN(text):
        return text
    return json.dumps(text.decode("utf-8", "backslashreplace"))[1:-1].encode()


class Right:
    """What is known of a subject that may be published.

    Attributes:
        said: the subject as it stands in JSON; b"" if just so.
        stored: whether a stream stores what is published on it.
        task, state: of a record of a task, else "".
        extra: further fields of its audit records, as JSON that begins with a comma.
    """

    __slots__ = ("extra", "said", "state", "stored", "task")

    def __init__(self, subject: bytes = b"", *, stored: bool = False, tasks: bool = False) -> None:
        self.said = quoted(subject)
        self.stored = stored
        self.task = self.state = ""
        self.extra = b""
        if tasks:
            self.task, _, self.state = subject.decode("ascii").split(".", 3)[3].partition(".")
            self.extra = b',"task":"%b"' % quoted(self.task.encode())


_UNIQUE = Right()


class _Answers:
    """Subjects that match one of `patterns`, which end in `>`, and hold nothing that JSON would escape.

    Of such a subject only what follows the last dot is new each time, so the rest is remembered.
    """

    def __init__(self, patterns: list[str]) -> None:
        self._compiled = _compile(patterns, _QUIET)
        self._stems: set[bytes] = set()

    def match(self, subject: bytes) -> bool:
        last = subject.rfind(b".") + 1
        if subject[:last] in self._stems and _LAST(subject, last):
            return True
        if not self._compiled(subject):
            return False
        if len(self._stems) >= KEPT:
            self._stems.clear()
        self._stems.add(subject[:last])
        return True


class Rights:
    """The rights of worker `own` in `projects`."""

    def __init__(self, own: str, projects: tuple[str, ...]) -> None:
        granted = agent_permissions(own, projects)
        stored = [pattern for pattern in granted.publish if _is_stored(pattern)]
        passing = [pattern for pattern in granted.publish if not _is_stored(pattern)]
        self._stored = _compile(stored)
        self._passing = _compile(passing)
        # Acknowledgements and answers have a new subject each time: to remember them would be to forget the others.
        self._acks = _compile([p for p in passing if p.startswith("$JS.ACK.")], _QUIET)
        self._answers = _Answers([p for p in passing if p.startswith("_I.")])
        self._mailbox = _Answers([f"_I.{own}.>"])
        self._odd_mailbox = _compile([f"_I.{own}.>"])
        self._subscribe = granted.subscribe
        self._tasks = f"worker.{own}.tasks.".encode()
        self._known: dict[bytes, Right] = {}

    def publish(self, subject: bytes) -> Right | None:
        """What is known of `subject`, None if it may not be published."""
        known = self._known.get(subject)
        if known is not None:
            return known
        if len(subject) > MAX_SUBJECT:
            return None
        if self._answers.match(subject) or self._acks(subject):
            return _UNIQUE
        stored = self._stored(subject) is not None
        if not stored and not self._passing(subject):
            return None
        right = Right(subject, stored=stored, tasks=subject.startswith(self._tasks))
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[subject] = right
        return right

    def answered_at(self, reply: bytes) -> bool:
        """Whether `reply` may be named as the subject for an answer."""
        return len(reply) <= MAX_SUBJECT and (
            self._mailbox.match(reply) or self._odd_mailbox(reply) is not None
        )

    def subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Whether `subject`, which may hold wildcards, may be subscribed in the queue group `queue` ("" for none)."""
        if len(subject) > MAX_SUBJECT or not _INTEREST.fullmatch(subject):
            return False
        if queue and (len(queue) > MAX_QUEUE or not _QUEUE.fullmatch(queue)):
            return False
        wanted = subject.decode("ascii")
        return any(_covers(pattern, wanted) for pattern in self._subscribe)


def _is_stored(pattern: str) -> bool:
    example = pattern.replace("*", "x").replace(">", "x.x")
    return allows(_STORED, example)


def _compile(patterns: list[str], one: bytes = _TOKEN):  # noqa: ANN202 (a bound method of a compiled pattern)
    def expression(pattern: str) -> bytes:
        return rb"\.".join(
            rb"%b(?:\.%b)*" % (one, one)
            if token == ">"
            else one
            if token == "*"
            else re.escape(token.encode("ascii"))
            for token in pattern.split(".")
        )

    return re.compile(b"|".join(map(expression, patterns)) or b"(?!)").fullmatch


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
