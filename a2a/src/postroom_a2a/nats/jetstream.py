"""JetStream over one connection: its API, publishes that wait for storage, streams and consumers.

Names and documents are those of the NATS server (ADR-1); only what we need is here. After a reconnect `JetStream` asks
again whatever may be asked twice, since the answer may be lost with the former session.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from postroom_a2a.errors import (
    BusDisconnected,
    Conflict,
    NoResponders,
    NotFound,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom_a2a.nats import refusals
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import NO_RESPONDERS, Frame, status_of
from postroom_a2a.nats.silence import Silence
from postroom_a2a.retry import RetryPolicy

API_TIMEOUT = 5.0
"""Seconds for the answer to a call of the API, and for a PubAck."""

PAUSES = RetryPolicy(base=0.04, cap=0.5)
"""Pauses, in seconds, before a request is sent again."""

MSG_ID = "Nats-Msg-Id"
LAST_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
TTL = "Nats-TTL"

ASK_AGAIN = 3.0
"""Seconds before a call that changes nothing twice is sent again: a stream drops what comes while it has no leader."""

ASK_AGAIN_BLIND = 2.0
"""The same on a connection that does not tell when it was lost."""

_PUB_ACK = re.compile(rb'\{"stream":"([^"\\]+)", ?"seq":([0-9]+)\}')
# JetStream's error codes (NATS server, errors.json).
_ABSENT = frozenset({10014, 10037, 10043, 10059})  # no consumer, no message, no sequence, no stream
_IN_USE = frozenset({10013, 10058, 10148})  # a consumer or stream of that name is there already


class Stored(NamedTuple):
    """The confirmation that a record is on disk (PubAck).

    Attributes:
        duplicate: a message of the same `Nats-Msg-Id` was in the stream already, at `sequence`, and it did not come
            from an earlier attempt of the same call.
    """

    stream: str
    sequence: int
    duplicate: bool = False


class JetStream:
    """JetStream over the connection of `mailbox`; a domain has another `prefix` of the API's subjects."""

    def __init__(self, mailbox: Mailbox, *, prefix: str = "$JS.API") -> None:
        self.mailbox = mailbox
        self.prefix = prefix
        self._unstored = Silence(mailbox.connection)
        self._unanswered = Silence(mailbox.connection)

    async def api(
        self, verb: str, body: Mapping[str, Any] | None = None, *, timeout: float = API_TIMEOUT
    ) -> dict[str, Any]:
        """Call `$JS.API.<verb>`; if the server cannot do it at the moment, try again within `timeout` seconds.

        Raises:
            NoResponders: JetStream is off, or off for this account.
            NotFound: the stream, consumer or message does not exist.
            Conflict: there is a stream or consumer of that name with another configuration.
            Refused: any other error of the API (and the subclasses of `Refused`), with the server's text.
            RequestTimeout, BusDisconnected: no answer came; the server may have done it.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        document, _ = await self._answer(
            f"{self.prefix}.{verb}", payload, timeout, self._unanswered
        )
        if isinstance(document, Stored):
            raise ProtocolViolation("JetStream answered an API call with a PubAck")
        error = document.get("error")
        if not error:
            return document
        what = verb.replace(".", " ").lower()
        code = refusals.code_of(error)
        if code in _ABSENT or (error.get("code") == 404 and not code):
            raise NotFound(f"{what}: {error.get('description', '')}")
        if code in _IN_USE:
            raise Conflict(f"{what}: {error.get('description', '')}")
        raise refusals.of_call(error, what)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = API_TIMEOUT,
    ) -> Stored:
        """Publish to a stream, and return when the message is stored.

        With a `Nats-Msg-Id` among the headers, the call sends the message again when the answer was lost.

        Raises:
            NoResponders: no stream stores the subject, or JetStream is off.
            LostUpdate: the expected sequence in the headers was not the last one. The first copy of a message that
                was sent again may itself be the cause.
            StreamFull, MessageTooLarge, Refused: the message is not stored, by an answer that is known to mean that.
            Forbidden: this identity may not publish there.
            RequestTimeout, BusDisconnected: no answer came, or one of which that is not known; the message may be
                stored.
        """
        repeat = headers is not None and MSG_ID in headers
        document, first = await self._answer(
            subject, payload, timeout, self._unstored, headers, repeat=repeat
        )
        if isinstance(document, Stored):
            return document
        if error := document.get("error"):
            raise refusals.of_publish(error, subject, first=first)
        try:
            duplicate = document.get("duplicate") is True and first
            return Stored(str(document["stream"]), int(document["seq"]), duplicate)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation("JetStream's answer is not a PubAck") from error

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: float = API_TIMEOUT,
        headers: dict[str, str] | None = None,
        repeat: bool = True,
        silence: Silence | None = None,
    ) -> tuple[Frame, bool]:
        """Publish, and wait for one answer, across reconnects too; returns the answer, and whether it was asked once.

        Args:
            repeat: ask again when the answer was lost; for requests that may be done twice.
            silence: goes on with each answer that does not come.

        Raises:
            As `Mailbox.ask`; `BusDisconnected` also if there was no server all the time, so that nothing was sent.
        """
        mailbox = self.mailbox
        loop = mailbox.loop
        began, failures = loop.time(), 0
        deadline = began + timeout
        while True:
            if not mailbox.connection.is_connected:
                await mailbox.connected(deadline)
            share = max(0.001, deadline - loop.time())
            if repeat:
                share = min(share, ASK_AGAIN if mailbox.hears_changes else ASK_AGAIN_BLIND)
            try:
                frame = await mailbox.ask(
                    subject, payload, timeout=share, headers=headers, until_change=repeat
                )
            except (RequestTimeout, BusDisconnected, Refused) as error:
                unsent = isinstance(error, Refused)  # this copy; one before it may have been heard
                if unsent and not failures:
                    raise
                if silence is not None:
                    silence.goes_on(began)
                if not repeat or loop.time() >= deadline or mailbox.connection.is_closed:
                    if unsent:
                        raise refusals.perhaps(error, subject) from error
                    raise
            else:
                return frame, not failures
            failures += 1
            await asyncio.sleep(min(PAUSES.delay(failures), deadline - loop.time()))

    async def _answer(
        self,
        subject: str,
        payload: bytes,
        timeout: float,
        silence: Silence,
        headers: dict[str, str] | None = None,
        *,
        repeat: bool = True,
    ) -> tuple[dict[str, Any] | Stored, bool]:
        """As `ask`, also while JetStream starts; a plain PubAck, the most frequent answer, needs no JSON parser."""
        loop = self.mailbox.loop
        began, failures, first = loop.time(), 0, True
        deadline = began + timeout
        # A call may take its time, as one that makes a stream does, whose copies choose a leader first.
        late_answers = silence if silence is self._unstored else None
        while True:
            share = max(0.001, deadline - loop.time())
            try:
                frame, once = await self.ask(
                    subject,
                    payload,
                    timeout=share,
                    headers=headers,
                    repeat=repeat,
                    silence=late_answers,
                )
            except Refused as error:
                if failures:
                    raise refusals.perhaps(error, subject) from error
                raise
            first = first and once
            if found := _PUB_ACK.fullmatch(frame.data):
                silence.end()
                return Stored(found[1].decode(), int(found[2])), first
            document = _document(frame)
            if document is not None and not refusals.is_temporary(document):
                silence.end()
                return document, first
            if document is None or refusals.is_unled(document):
                silence.goes_on(began)
            failures += 1
            pause = PAUSES.delay(failures)
            late = loop.time() + pause >= deadline
            if document is None and (late or not self.mailbox.recovering):
                if not first:  # an earlier copy may have been heard
                    raise RequestTimeout(
                        f"JetStream does not answer on {subject!r} any more",
                        remedy=refusals.UNCERTAIN,
                    )
                raise NoResponders(
                    f"JetStream does not answer on {subject!r}",
                    remedy="start nats-server with --jetstream, and switch it on for this account; in a cluster "
                    "see that its servers reach each other: they may be choosing a leader",
                )
            if document is not None and late:
                return document, first
            await asyncio.sleep(pause)

    # ── streams and consumers ────────────────────────────────────────────────────────────────────────

    async def open_stream(
        self, wanted: Mapping[str, Any], *, create: bool = True
    ) -> dict[str, Any]:
        """The configuration of the stream, which is made as `wanted` if it is missing.

        Raises:
            NotFound: it is missing, and `create` is False.
            As `api`.
        """
        name = wanted["name"]
        for _ in range(8):  # others may make it at the same time
            try:
                return (await self.api(f"STREAM.INFO.{name}"))["config"]
            except NotFound:
                if not create:
                    raise
            with suppress(Conflict):
                return (await self.api(f"STREAM.CREATE.{name}", wanted))["config"]
        raise Conflict(f"the stream {name} comes and goes: try again")

    async def ensure_stream(self, name: str, subjects: Sequence[str], **settings: Any) -> None:
        """Make the stream, or add the subjects that the stream of that name lacks; its other settings stay.

        Args:
            subjects: the subjects that it has to store; a wildcard of the stream may cover some already.
            settings: members of the configuration of a new stream.

        Raises:
            Refused: the server cannot make or change it so; the text is the server's.
            As `api`.
        """
        wanted = {"name": name, "subjects": list(subjects), **settings}
        for _ in range(8):  # others may change it at the same time
            config = await self.open_stream(wanted)
            there = list(config.get("subjects", ()))
            lacking = [each for each in subjects if not any(covers(have, each) for have in there)]
            if not lacking:
                return
            kept = [have for have in there if not any(covers(each, have) for each in lacking)]
            await self.api(f"STREAM.UPDATE.{name}", {**config, "subjects": [*kept, *lacking]})
        raise Conflict(f"the stream {name} changes all the time: try again")

    async def ensure_consumer(
        self, stream: str, name: str, config: Mapping[str, Any], *, changeable: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Make the durable consumer, or set the `changeable` members of the one that exists.

        Returns the consumer's configuration; raises as `api` does.
        """
        try:
            there = (await self.api(f"CONSUMER.INFO.{stream}.{name}"))["config"]
        except NotFound:
            there = {}
        wanted = {**config, "durable_name": name, "name": name}
        if there:
            change = {key: config[key] for key in changeable if key in config}
            if all(there.get(key) == value for key, value in change.items()):
                return there
            wanted = {**there, **change}
        return await self.create_consumer(stream, name, wanted)

    async def create_consumer(
        self, stream: str, name: str, config: Mapping[str, Any], *, timeout: float = API_TIMEOUT
    ) -> dict[str, Any]:
        """Make a consumer, or change it to `config`; returns the configuration that the server gave it."""
        target = f"CONSUMER.CREATE.{stream}.{name}"
        if subject := config.get("filter_subject"):
            target = f"{target}.{subject}"
        request = {"stream_name": stream, "config": dict(config)}
        return (await self.api(target, request, timeout=timeout))["config"]


def covers(pattern: str, subject: str) -> bool:
    """Whether `pattern` matches everything that `subject`, which may have wildcards, matches."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or given[index] == ">":
            return False
        if token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


def _document(frame: Frame) -> dict[str, Any] | None:
    """The answer as JSON; None for the status that nobody listens."""
    if status_of(frame) == NO_RESPONDERS:
        return None
    try:
        document = json.loads(frame.data)
    except ValueError as error:
        raise ProtocolViolation("JetStream's answer is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("JetStream's answer is not a JSON object")
    return document
