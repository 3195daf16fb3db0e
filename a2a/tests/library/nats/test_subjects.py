"""The token rule and the URL rule of the wire, as its tables have them, and what is refused unless it is asked for."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_a2a.binding import subjects
from postroom_a2a.errors import InvalidInput, InvalidName

TOKENS = [
    ("agent-a", "agent-a"),
    ("wyrd.a2a", "wyrd_a2a"),
    ("a/b", "a_b"),
    ("a b", "a_b"),
    ("a\0b", "a_b"),
    ("*", "_"),
    (">", "_"),
    ("é", "_"),
    ("日本", "__"),
    ("\U0001f600", "__"),
    ("  x  ", "x"),
    ("\ufeffx", "x"),
    ("\xa0x", "x"),
    ("\x85x", "_x"),
    ("\x1f", "_"),
    ("\ud800", "_"),
]


@pytest.mark.requirement("a2a-http-versions")
def test_a_token_is_made_as_the_wire_makes_it():
    for value, token in TOKENS:
        assert subjects.token(value, compatible=True) == token


def test_a_token_is_never_empty():
    for compatible in [True, False]:
        for value in ["", "   ", "\ufeff"]:
            with pytest.raises(InvalidName, match="empty"):
                subjects.token(value, compatible=compatible)


def test_an_id_that_the_rule_would_change_is_refused_with_the_token_it_would_become():
    for value, token in [pair for pair in TOKENS if pair[0] != pair[1]]:
        with pytest.raises(InvalidName, match=f"'{token}'"):
            subjects.token(value)


@given(st.text())
def test_a_token_that_is_taken_is_the_id_itself_and_no_two_ids_share_it(value: str):
    try:
        token = subjects.token(value)
    except InvalidName:
        return
    assert token == value
    assert subjects.check_subject(token) == token


@given(st.text(st.characters(), min_size=1))
def test_a_compatible_token_has_one_place_per_utf16_code_unit(value: str):
    kept = f"x{value}x"
    token = subjects.token(kept, compatible=True)
    assert len(token) == len(kept.encode("utf-16-le", "surrogatepass")) // 2


def test_subjects_and_keys_are_those_of_the_wire():
    assert subjects.core_subject("a.b", "x.y", compatible=True) == "x_y.agent.a_b.rpc"
    assert subjects.request_subject("q") == "a2a.agent.q.requests"
    assert subjects.response_subject("c 1", compatible=True) == "a2a.client.c_1.responses"
    assert subjects.card_key("é", "n", compatible=True) == "n.agents._"
    assert subjects.queue_group("a2a.agent.echo.rpc") == "a2a_agent_echo_rpc_server"
    assert subjects.core_url("a2a.agent.x.rpc") == "nats://a2a.agent.x.rpc"
    assert subjects.durable_url("a2a.agent.x.requests") == "nats+js://a2a/agent/x/requests"


URLS = [
    ("nats://a2a.agent.agent-a.rpc", "a2a.agent.agent-a.rpc"),
    ("nats://a2a/agent/x/rpc/", "a2a.agent.x.rpc"),
    ("NATS://a2a/agent/x/rpc", "a2a.agent.x.rpc"),
    ("nats+js://server-a/agent/agent-a/requests", "server-a.agent.agent-a.requests"),
    ("nats://A2A.Agent.X.rpc", "A2A.Agent.X.rpc"),
    ("nats:///a2a/agent/x/rpc", "a2a.agent.x.rpc"),
    ("nats://host:4222/a2a/agent/x/rpc", "host.a2a.agent.x.rpc"),
    ("nats://user:pw@a2a/agent/x/rpc?q=1#f", "a2a.agent.x.rpc"),
    ("nats://a2a/agent/../x", "a2a.x"),
    ("nats://a2a/agent/%2E%2e/x", "a2a.x"),
    ("nats://a2a/agent/é/rpc", "a2a.agent.%C3%A9.rpc"),
    ("nats://a2a_x.agent.é.rpc", "a2a_x.agent.%C3%A9.rpc"),
    ("nats://a2a/agent/a b/rpc", "a2a.agent.a%20b.rpc"),
    ("nats://[::1]/a2a/x", "[::1].a2a.x"),
    ("a2a.agent.x.rpc", "a2a.agent.x.rpc"),
    ("  a2a.agent.x.rpc\n", "a2a.agent.x.rpc"),
    ("nats:a2a.x", "nats:a2a.x"),
]

ILLEGAL = [
    ("nats://a2a.agent.*.rpc", "a2a.agent.*.rpc"),
    ("nats://a2a/agent//x/rpc", "a2a.agent..x.rpc"),
    ("foo bar", "foo bar"),
    ("a2a.*.>", "a2a.*.>"),
    ("nats://" + "x" * 2000, "x" * 2000),
]


@pytest.mark.requirement("a2a-http-versions")
def test_a_url_names_the_subject_that_the_wire_says():
    for url, subject in URLS:
        assert subjects.subject_of(url) == subjects.subject_of(url, compatible=True) == subject


def test_a_url_that_names_no_subject_to_publish_to_is_refused_unless_compatible():
    for url, subject in ILLEGAL:
        assert subjects.subject_of(url, compatible=True) == subject
        with pytest.raises(InvalidInput):
            subjects.subject_of(url)


def test_a_url_that_the_wire_refuses_is_refused_in_its_words():
    for url, said in [
        ("", "cannot be empty"),
        ("  ", "cannot be empty"),
        ("http://a2a.x", "Unsupported A2A NATS URL protocol: http:"),
        ("nats://", "does not contain a subject"),
        ("nats:///", "does not contain a subject"),
        ("nats://a2a.agent.>", "Invalid URL"),
        ("nats://a\\b", "Invalid URL"),
        ("nats://a b/x", "Invalid URL"),
        ("nats://a:99999/x", "Invalid URL"),
        ("nats://:4222/x", "Invalid URL"),
        ("nats://u@/x", "Invalid URL"),
        ("nats://[::g]/x", "Invalid URL"),
        ("4nats://x", "Invalid URL"),
    ]:
        for compatible in (True, False):
            with pytest.raises(InvalidInput, match=said):
                subjects.subject_of(url, compatible=compatible)


@given(st.text())
def test_what_a_url_gives_can_be_published_to(text: str):
    try:
        subject = subjects.subject_of(f"nats://{text}")
    except InvalidInput:
        return
    assert not any(c.isspace() or c in "*>" for c in subject)
    assert all(subject.split("."))


def test_a_port_or_a_password_in_a_url_is_told_once_and_not_shown(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.WARNING, "postroom"):
        for _ in range(3):
            subjects.subject_of("nats://me:hunter2@once.example:4222/x?y#z")
    assert len(caplog.records) == 1
    assert "hunter2" not in caplog.text
