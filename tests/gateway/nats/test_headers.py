"""Which header blocks pass a door."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.gateway.nats.headers import LARGE, MALFORMED, Headers
from postroom.protocol.tasks import chain_headers

OWN, TASK = "a" * 32, "1" * 32
HEADERS = Headers(f"worker.{OWN}.tasks.".encode())


def block(**named: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def refusal(said: bytes, *, task: bool = False) -> str:
    return HEADERS.refusal(b"HPUB x 1 1\r\n" + said + b"body\r\n", 12, len(said), task=task)


@pytest.mark.requirement("attack-publish-refused")
def test_what_a_worker_needs_passes():
    chained = {name.replace("-", "_"): value for name, value in chain_headers(OWN, TASK, 7).items()}

    assert refusal(block()) == ""
    assert refusal(block(X="y", traceparent="00-1", Nats_Msg_Id="m-1")) == ""
    assert refusal(block(Nats_Msg_Id="m-1", **chained), task=True) == ""


@pytest.mark.requirement("attack-publish-refused")
@pytest.mark.parametrize(
    "said, why",
    [
        (block(Nats_Rollup="all"), "header Nats-Rollup"),
        (block(nats_msg_id="x"), "header nats-msg-id"),
        (block(Nats_Msg_Id="a b"), "header Nats-Msg-Id"),
        (
            block(Nats_Expected_Last_Subject_Sequence="1"),
            "header Nats-Expected-Last-Subject-Sequence",
        ),
        (block(X="y" * 4096), LARGE),
        (block(X="y\rz"), MALFORMED),
        (b"NATS/1.0 503\r\n\r\n", MALFORMED),
    ],
)
def test_what_it_does_not_need_is_refused_with_a_reason(said: bytes, why: str):
    assert refusal(said) == why


@given(st.binary(max_size=200))
def test_whatever_passes_has_one_form_and_ends_where_it_says(said: bytes):
    for start in (b"", b"NATS/1.0\r\n", b"NATS/1.0\r\nNats-Msg-Id: "):
        whole = start + said + b"\r\n\r\n"
        if not refusal(whole):
            assert whole.startswith(b"NATS/1.0\r\n")
            assert whole.count(b"\r\n\r\n") == 1
