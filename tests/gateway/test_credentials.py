"""Credentials that the gateway adds: how they are bound, and how they are kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import InvalidInput, NameTaken, NotFound, StateUnwritable
from postroom.gateway.credentials import BoundCredential, Credentials
from postroom.gateway.port import DoorSpec
from postroom.protocol.egress import Target

SPEC = DoorSpec("a" * 32, "default", "", credentials=("anthropic", "wide", "narrow"))
MODEL = Target("https", "api.anthropic.com", 443, "/v1/messages")


def bound(name: str = "anthropic", host: str = "api.anthropic.com", **more: Any) -> BoundCredential:
    return BoundCredential.bind(name, "default", host, secret=more.pop("secret", "s3cret"), **more)


def test_a_credential_outlives_the_process_in_a_file_of_the_owner(tmp_path: Path):
    path = tmp_path / "keys" / "credentials.json"
    before = os.umask(0)
    try:
        Credentials(path).add(bound())
    finally:
        os.umask(before)

    assert Credentials(path).of("default") == [bound()]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["credentials.json"]


def test_the_header_is_made_of_its_form(tmp_path: Path):
    credentials = Credentials(tmp_path / "c.json")
    credentials.add(bound(header="X-Api-Key: {secret}"))

    assert credentials.headers(SPEC, MODEL) == {b"x-api-key": (b"X-Api-Key", b"s3cret")}


def test_of_two_for_one_header_the_one_with_the_longer_path_is_added(tmp_path: Path):
    credentials = Credentials(tmp_path / "c.json")
    credentials.add(bound("narrow", path="/v1", secret="narrow"))
    credentials.add(bound("wide", secret="wide"))

    assert credentials.headers(SPEC, MODEL) == {
        b"authorization": (b"Authorization", b"Bearer narrow")
    }


def test_another_organisation_has_other_credentials(tmp_path: Path):
    credentials = Credentials(tmp_path / "c.json")
    credentials.add(BoundCredential.bind("anthropic", "other", "api.anthropic.com", secret="x"))

    assert credentials.headers(SPEC, MODEL) == {}
    assert credentials.of("default") == []


def test_names_are_taken_and_gone(tmp_path: Path):
    credentials = Credentials(tmp_path / "c.json")
    credentials.add(bound())

    with pytest.raises(NameTaken):
        credentials.add(bound())
    credentials.add(bound(secret="new"), replacing=True)
    credentials.remove("default", "anthropic")
    with pytest.raises(NotFound):
        credentials.remove("default", "anthropic")


@pytest.mark.requirement("egress-key-outside")
@pytest.mark.parametrize(
    "change",
    [
        {"secret": "s3cret\r\nX-Evil: 1"},
        {"secret": ""},
        {"secret": "s3cret" * 4000},
        {"secret": "schlüssel-s3cret"},
        {"host": "*.anthropic.com"},
        {"host": "api.anthropic.com", "path": "/v1/../x"},
        {"header": "Authorization"},
        {"header": "Authorization: Bearer"},
        {"header": "X Y: {secret}"},
        {"header": "X: {secret}\r\nY: 1"},
        {"header": "Host: {secret}"},
        {"header": "Transfer-Encoding: {secret}"},
        {"name": "../x"},
    ],
)
def test_a_malformed_credential_is_refused_without_its_secret_in_the_text(change: dict[str, Any]):
    with pytest.raises(InvalidInput) as caught:
        bound(**change)

    assert "s3cret" not in str(caught.value)


@pytest.mark.requirement("egress-key-outside")
def test_a_file_that_is_none_is_not_repeated(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text('{"credentials": [{"secret": "s3cret", "colour": 1}]}')

    with pytest.raises(StateUnwritable) as caught:
        Credentials(path)

    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "s3cret" not in repr(bound()) + str(bound().shown())


def test_what_cannot_be_kept_does_not_count(tmp_path: Path):
    credentials = Credentials(tmp_path / "c.json")
    credentials._path = tmp_path / "c.json" / "no"
    (tmp_path / "c.json").write_text("")

    with pytest.raises(StateUnwritable):
        credentials.add(bound())
    assert credentials.of("default") == []
