"""The first line through a door: one spelling and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.errors import ProtocolViolation
from postroom.protocol.preface import MAX_BYTES, PROTOCOLS, Preface

protocols = st.sampled_from(PROTOCOLS)
tokens = st.from_regex(r"[A-Za-z0-9]{1,128}", fullmatch=True)


@pytest.mark.requirement("gateway-nats-proof")
@given(protocols, tokens)
def test_a_preface_survives_the_wire(protocol: str, token: str):
    preface = Preface(protocol, token)

    assert Preface.decode(preface.encode()) == preface


@pytest.mark.requirement("gateway-nats-proof")
@given(st.binary(max_size=300) | st.from_regex(rb"POSTROOM/1 [ -~\n]{0,80}\n", fullmatch=True))
@example(b"POSTROOM/1 nats \n")
@example(b"POSTROOM/1 nats abc")
@example(b"POSTROOM/1 nats abc\r\n")
@example(b"POSTROOM/1  nats abc\n")
@example(b"POSTROOM/1 nats abc \n")
@example(b" POSTROOM/1 nats abc\n")
@example(b"postroom/1 nats abc\n")
@example(b"POSTROOM/2 nats abc\n")
@example(b"POSTROOM/1 NATS abc\n")
@example(b"POSTROOM/1 ssh abc\n")
@example(b"POSTROOM/1 nats a-c\n")
@example(b"POSTROOM/1 nats abc\nabc\n")
@example("POSTROOM/1 nats \u0661\n".encode())
@example(b"POSTROOM/1 nats " + b"a" * MAX_BYTES + b"\n")
def test_a_line_is_its_own_encoding_or_a_violation(line: bytes):
    try:
        preface = Preface.decode(line)
    except ProtocolViolation:
        return
    assert preface.encode() == line


@pytest.mark.requirement("gateway-nats-proof")
def test_a_line_over_the_limit_is_a_violation():
    shell = len(b"POSTROOM/1 nats \n")
    longest = Preface("nats", "a" * (MAX_BYTES - shell))

    assert Preface.decode(longest.encode()) == longest
    with pytest.raises(ProtocolViolation):
        Preface.decode(Preface("nats", longest.token + "a").encode())


@pytest.mark.requirement("gateway-nats-proof")
@given(protocols, tokens)
def test_a_violation_does_not_repeat_the_token(protocol: str, token: str):
    token = "s3cret" + token
    with pytest.raises(ProtocolViolation) as caught:
        Preface.decode(f"POSTROOM/9 {protocol} {token}\n".encode())

    assert token not in str(caught.value)
