"""The address of a PostgreSQL: what is shown of it, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.store.postgres.connection import Address


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:secret@127.0.0.1:5433/room", "postgresql://127.0.0.1:5433/room"),
        ("postgres://me:secret@localhost/room", "postgresql://localhost:5432/room"),
        ("postgresql://me:s%40cret@[::1]/room", "postgresql://::1:5432/room"),
        ("postgresql:///room?host=/run/pg&password=secret", "postgresql:///run/pg:5432/room"),
        ("postgresql://me:secret@%2Frun%2Fpg/room", "postgresql:///run/pg:5432/room"),
        ("postgresql:///room", "postgresql://localhost:5432/room"),
        (
            "postgresql://me:secret@db.example/room?sslmode=verify-full",
            "postgresql://db.example:5432/room",
        ),
        ("postgresql://me:secret@a:1,b:2/room?sslmode=require", "postgresql://a,b:1,2/room"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str):
    address = Address.parse(url)
    assert address.shown == shown
    assert "secret" not in repr(address)
    assert address.url == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@db.example/room",
        "postgresql://me:secret@db.example/room?sslmode=prefer",
        "postgresql://me:secret@db.example/room?sslmode=verify-full&sslmode=disable",
        "postgresql://me:secret@localhost,db.example/room",
        "postgresql://me:secret@/room?host=db.example",
        "postgresql://me:secret@localhost/room?host=db.example",
        "postgresql://me:secret@localhost/room?hostaddr=10.0.0.1",
        "postgresql://me:secret@10.0.0.1/room",
        "postgresql://localhost:secret@db.example:5432/room",
        "postgresql:///room?service=elsewhere",
        "postgresql://me:secret@[2001:db8::1]/room",
    ],
)
def test_a_connection_that_others_could_read_is_refused(url: str):
    with pytest.raises(InvalidInput, match="could be read") as caught:
        Address.parse(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:secret@h/room",
        "secret",
        "",
        "postgresql:",
        "postgresql://me:s@cret@localhost/",
        "postgresql://me:%zz@h/",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(url: str):
    with pytest.raises(InvalidInput, match="not the address") as caught:
        Address.parse(url)
    assert "sec" not in str(caught.value)


def test_what_the_environment_says_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGHOST", "db.example")
    with pytest.raises(InvalidInput, match="could be read"):
        Address.parse("postgresql:///room")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert Address.parse("postgresql:///room").shown == "postgresql://db.example:5432/room"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=8))
def test_no_password_gets_into_what_is_shown(password: str):
    shown: object
    try:
        shown = Address.parse(f"postgresql://me:{password}@localhost/room")
    except InvalidInput as error:
        shown = error
    assert password not in str(shown)
