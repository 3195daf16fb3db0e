"""Names that become parts of subjects, and ids that nobody else can make."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from postroom.errors import InvalidName
from postroom.protocol import ids
from postroom.protocol.ids import (
    CONTROL_PLANE,
    NO_PROJECT,
    RESERVED_NICKS,
    check_message_id,
    check_name,
    check_nick,
    check_uid,
    is_uid,
    message_id,
    skeleton,
)

UID = "0123456789abcdef" * 2
secrets = st.binary(min_size=1, max_size=32)
names = st.from_regex(ids.NAME, fullmatch=True)


@pytest.mark.requirement("identity-inbox-private")
@given(st.text(max_size=70))
@example("*")
@example(">")
@example("a.b")
@example("a\n")
@example("a b")
@example("")
@example("-")
@example("A")
@example("a" * 65)
@example("\u0430")
def test_a_name_that_passes_is_one_harmless_token_of_a_subject(text: str):
    try:
        checked = check_name(text)
    except InvalidName:
        return
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", checked, re.ASCII)
    assert checked == text


@given(names)
def test_each_name_of_the_stated_form_passes(name: str):
    assert check_name(name) == name


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize(
    "text", ["", "*", ">", UID[:-1], UID + "0", UID.upper(), UID + "\n", f"{UID[:-1]}.", "g" * 32]
)
def test_only_32_small_hex_digits_are_a_uid(text: str):
    with pytest.raises(InvalidName):
        check_uid(text)
    assert not is_uid(text)


def test_a_uid_passes():
    assert check_uid(UID) == UID
    assert is_uid(UID)


@pytest.mark.requirement("identity-inbox-private")
def test_no_agent_is_given_the_uid_of_the_control_plane():
    assert is_uid(CONTROL_PLANE)
    with pytest.raises(InvalidName):
        check_uid(CONTROL_PLANE)


def test_no_project_can_have_the_token_for_none():
    with pytest.raises(InvalidName):
        check_name(NO_PROJECT, "project")


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize("nick", sorted(RESERVED_NICKS))
def test_a_nick_of_people_or_the_system_is_refused(nick: str):
    with pytest.raises(InvalidName):
        check_nick(nick)


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize(
    "nick",
    [
        "0perator",
        "operat0r",
        "adm1n",
        "admln",
        "ad-min",
        "admin_",
        "hurnan",
        "hur-nan",
        "post-room",
        "p0str00m",
        "postrnaster",
        "sy5tem",
        "r00t",
        "u5er",
        "a11",
        "ail",
        "0wner",
        "ovvner",
        "contro1plane",
        "control_plane",
        "everyb0dy",
        "nu11",
    ],
)
def test_a_nick_that_looks_like_a_reserved_one_is_refused(nick: str):
    with pytest.raises(InvalidName):
        check_nick(nick)


@pytest.mark.requirement("directory-name-unique")
@given(st.sampled_from(sorted(RESERVED_NICKS)), st.data())
def test_no_exchange_of_look_alikes_makes_a_reserved_nick_pass(nick: str, data: st.DataObject):
    alike = {"o": "o0", "0": "o0", "l": "l1i", "i": "l1i", "1": "l1i", "s": "s5"}
    disguise = "".join(data.draw(st.sampled_from(alike.get(letter, letter))) for letter in nick)
    for letter, twin in (("m", "rn"), ("w", "vv")):
        if data.draw(st.booleans()):
            disguise = disguise.replace(letter, twin)

    with pytest.raises(InvalidName):
        check_nick(disguise)


@pytest.mark.requirement("directory-name-unique")
@given(st.from_regex(ids.UID, fullmatch=True))
def test_a_nick_that_could_be_read_as_a_uid_is_refused(nick: str):
    with pytest.raises(InvalidName):
        check_nick(nick)


@pytest.mark.parametrize(
    "nick", ["scout", "reader-2", "peter", "rooter", "humane", "usher", "4ever"]
)
def test_an_ordinary_nick_passes(nick: str):
    assert check_nick(nick) == nick


@given(names)
def test_the_skeleton_of_a_skeleton_is_itself(nick: str):
    assert skeleton(skeleton(nick)) == skeleton(nick)


@given(names)
def test_hyphens_and_underscores_do_not_tell_two_nicks_apart(nick: str):
    assert skeleton(nick.replace("-", "_")) == skeleton(nick)
    assert skeleton(nick.replace("-", "").replace("_", "")) == skeleton(nick)


@pytest.mark.requirement("bus-ack-means-disk")
@given(secrets, secrets, names, names, st.text(), st.text())
def test_another_secret_recipient_or_key_makes_another_message_id(
    secret: bytes, other_secret: bytes, to: str, other_to: str, key: str, other_key: str
):
    # HMAC pads a key with NUL bytes: two secrets that differ in trailing NULs are one secret.
    assume(secret.rstrip(b"\0") != other_secret.rstrip(b"\0"))
    assume(to != other_to)
    assume(key != other_key)
    first = message_id(secret, to, key)

    assert first != message_id(other_secret, to, key)
    assert first != message_id(secret, other_to, key)
    assert first != message_id(secret, to, other_key)


@pytest.mark.requirement("bus-ack-means-disk")
@given(secrets, names, st.text(st.characters(exclude_categories=())))
@example(b"s", UID, "\ud800")
def test_the_same_key_toward_the_same_recipient_is_the_same_message(
    secret: bytes, to: str, key: str
):
    identifier = message_id(secret, to, key)

    assert identifier == message_id(secret, to, key)
    assert check_message_id(identifier) == identifier
    assert re.fullmatch(r"[0-9a-f]{32}", identifier)


@pytest.mark.requirement("identity-inbox-private")
@given(st.text(max_size=70))
@example("a.b")
@example("a\n")
@example("../x")
@example("")
@example("a" * 65)
def test_a_message_id_that_passes_has_no_character_of_subjects_paths_or_headers(text: str):
    try:
        checked = check_message_id(text)
    except InvalidName:
        return
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", checked, re.ASCII)
