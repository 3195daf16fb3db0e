"""The envelope: what goes in comes out, and nothing a peer stores can do more than be refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput, MessageTooLarge, ProtocolViolation
from postroom.protocol.envelope import Envelope
from postroom.protocol.limits import MAX_CONTEXT, MAX_ENVELOPE_BYTES
from postroom_a2a.times import format_time
from tests.protocol.records import is_storable, payloads

UID = "0123456789abcdef" * 2
INSTANT = 1_769_860_800.0
VALID: dict[str, Any] = {
    "v": 1,
    "id": "a1",
    "to": UID,
    "sent_at": format_time(INSTANT),
    "message": {"messageId": "a1", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]},
    "expects_reply": True,
    "reply_to": "a0",
    "expires_at": format_time(INSTANT + 60),
    "requeue_of": "b0",
    "response_subject": f"worker.{UID}.priority.{UID}",
}

# Whole seconds, since the wire has milliseconds and a float has not.
instants = st.integers(0, 4_000_000_000).map(float)
identifiers = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
envelopes = st.builds(
    Envelope,
    id=identifiers,
    to=st.just(UID) | st.just("#main"),
    message=st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    sent_at=instants,
    expects_reply=st.booleans(),
    reply_to=st.just("") | identifiers,
    expires_at=instants,
    requeue_of=st.just("") | identifiers,
    response_subject=st.just("") | st.just(f"worker.{UID}.priority.{UID}"),
)


def _payload(**changed: Any) -> bytes:
    return json.dumps({**VALID, **changed}).encode()


@given(envelopes)
def test_an_envelope_survives_the_wire(envelope: Envelope):
    assert Envelope.decode(envelope.encode()) == envelope


@pytest.mark.requirement("mail-deadletter-moved")
@given(payloads(VALID))
def test_any_payload_is_an_envelope_or_a_violation(payload: bytes):
    try:
        envelope = Envelope.decode(payload)
    except ProtocolViolation:
        return
    assert isinstance(envelope, Envelope)


@pytest.mark.requirement("mail-deadletter-moved")
@given(payloads(VALID))
def test_an_envelope_that_was_read_can_be_stored_and_sent_again(payload: bytes):
    try:
        envelope = Envelope.decode(payload)
    except ProtocolViolation:
        return
    assert is_storable(asdict(envelope))
    assert Envelope.decode(envelope.encode()).message == envelope.message


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize("key", ["v", "id", "to", "sent_at", "message"])
def test_a_payload_without_a_required_member_is_a_violation(key: str):
    with pytest.raises(ProtocolViolation):
        Envelope.decode(json.dumps({k: v for k, v in VALID.items() if k != key}).encode())


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2},
        {"v": "1"},
        {"id": "a.b"},
        {"id": ""},
        {"id": 5},
        {"to": None},
        {"message": "text"},
        {"message": {"parts": [{"text": "\ud800"}]}},
        {"message": {"n": float("nan")}},
        {"message": {"n": float("inf")}},
        {"sent_at": 5},
        {"sent_at": "2026-01-31T12:00:00"},
        {"expires_at": None},
        {"expires_at": "soon"},
        {"reply_to": ["a0"]},
        {"reply_to": "\udfff"},
        {"requeue_of": 1},
        {"response_subject": {}},
    ],
    ids=str,
)
def test_a_member_that_breaks_its_rule_is_a_violation(changed: dict[str, Any]):
    with pytest.raises(ProtocolViolation):
        Envelope.decode(_payload(**changed))


def test_the_valid_sample_is_an_envelope():
    envelope = Envelope.decode(_payload())

    assert (envelope.sent_at, envelope.expires_at) == (INSTANT, INSTANT + 60)
    assert envelope.expects_reply is True


def test_only_true_itself_expects_a_reply():
    assert Envelope.decode(_payload(expects_reply="yes")).expects_reply is False


def test_members_of_a_later_version_are_passed_over():
    assert Envelope.decode(_payload(colour="blue")).id == "a1"


@pytest.mark.requirement("identity-sender-proved")
@given(envelopes)
def test_no_envelope_says_who_sent_it(envelope: Envelope):
    assert json.loads(envelope.encode()).keys() <= VALID.keys()


@pytest.mark.requirement("mail-floods-contained")
def test_an_envelope_over_the_limit_is_not_made():
    frame = len(Envelope(id="a", to=UID, message={"t": ""}, sent_at=INSTANT).encode())
    fits = {"t": "x" * (MAX_ENVELOPE_BYTES - frame)}
    over = {"t": fits["t"] + "x"}

    whole = Envelope(id="a", to=UID, message=fits, sent_at=INSTANT).encode()

    assert len(whole) == MAX_ENVELOPE_BYTES
    with pytest.raises(MessageTooLarge):
        Envelope(id="a", to=UID, message=over, sent_at=INSTANT).encode()


@pytest.mark.requirement("mail-floods-contained")
def test_the_limit_counts_bytes_and_not_characters():
    text = "\N{GRINNING FACE}" * (MAX_ENVELOPE_BYTES // 4)
    with pytest.raises(MessageTooLarge):
        Envelope(id="a", to=UID, message={"t": text}, sent_at=INSTANT).encode()


def test_a_lone_surrogate_of_an_agent_is_replaced():
    payload = Envelope(id="a", to=UID, message={"t": "a\ud800b"}, sent_at=INSTANT).encode()

    assert Envelope.decode(payload).message == {"t": "a?b"}


def test_a_message_that_json_cannot_say_is_not_made():
    with pytest.raises(InvalidInput):
        Envelope(id="a", to=UID, message={"n": float("nan")}, sent_at=INSTANT).encode()


@pytest.mark.requirement("mail-offline-waits")
@given(instants.filter(bool), instants)
def test_an_envelope_is_expired_from_its_instant_on(expires_at: float, now: float):
    envelope = Envelope(id="a", to=UID, message={}, sent_at=0.0, expires_at=expires_at)

    assert envelope.expired(now) == (now >= expires_at)


@given(instants)
def test_an_envelope_without_expiry_never_expires(now: float):
    assert not Envelope(id="a", to=UID, message={}, sent_at=0.0).expired(now)


def test_a_message_with_an_overlong_context_is_refused_and_says_why():
    message = VALID["message"]

    kept = Envelope.decode(_payload(message={**message, "contextId": "c" * MAX_CONTEXT}))
    assert len(kept.message["contextId"]) == MAX_CONTEXT

    for context in ("c" * (MAX_CONTEXT + 1), 7):
        with pytest.raises(ProtocolViolation, match="a context id has "):
            Envelope.decode(_payload(message={**message, "contextId": context}))


def test_a_request_with_an_overlong_context_is_left_to_its_worker_to_reject():
    message = {**VALID["message"], "contextId": "c" * (MAX_CONTEXT + 1)}

    assert Envelope.decode(_payload(message=message, request={"method": "SendMessage"})).request
