from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput, Unauthorized
from postroom.identity import jwt
from postroom.identity.nkeys import KeyPair, Kind
from postroom.protocol.permissions import Export, Permissions

ISSUER = KeyPair.from_seed("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY")
NOW = 1_000_000.0


def made(name: str = "n", expires: float | None = None) -> str:
    return jwt.encode(ISSUER, ISSUER.public, name, {"type": "user"}, now=NOW, expires=expires)


@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=5))
def test_claims_survive_encoding(name: str, tags: list[str]):
    body = jwt.scoped_user_body("ACCOUNT", tags)
    token = jwt.encode(ISSUER, "subject", name, body, now=NOW, expires=NOW + 60)

    claims = jwt.verify(token, ISSUER.public, now=NOW)

    assert (claims["name"], claims["sub"], claims["iss"]) == (name, "subject", ISSUER.public)
    assert (claims["iat"], claims["exp"]) == (1_000_000, 1_000_060)
    assert claims["nats"] == {**body, "version": 2}


@given(st.integers(0, 2), st.integers(0), st.sampled_from("ABCXYZabcxyz019-_"))
def test_a_changed_character_is_noticed(part: int, place: int, letter: str):
    parts = made().split(".")
    at = place % (len(parts[part]) - 1)  # the last one may hold bits that mean nothing
    parts[part] = parts[part][:at] + letter + parts[part][at + 1 :]
    changed = ".".join(parts)

    if changed != made():
        with pytest.raises((InvalidInput, Unauthorized)):
            jwt.decode(changed)


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str):
    with pytest.raises(InvalidInput):
        jwt.decode(text)


def _with_claims(claims: object) -> str:
    head, _, signature = made().split(".")
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{head}.{body}.{signature}"


@pytest.mark.parametrize("claims", [[], {}, {"nats": 1}, {"nats": {"version": 1}}])
def test_claims_of_another_form_are_refused(claims: object):
    with pytest.raises(InvalidInput):
        jwt.decode(_with_claims(claims))


def test_an_unsigned_jwt_is_refused():
    _, claims, _ = made().split(".")
    head = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"none"}').decode().rstrip("=")

    with pytest.raises(InvalidInput):
        jwt.decode(f"{head}.{claims}.")


def test_a_jwt_of_another_issuer_is_refused():
    with pytest.raises(Unauthorized):
        jwt.verify(made(), KeyPair.generate(Kind.USER).public, now=NOW)


def test_a_jwt_is_valid_until_it_expires_and_not_after():
    token = made(expires=NOW + 60)

    assert jwt.verify(token, ISSUER.public, now=NOW + 59)
    with pytest.raises(Unauthorized):
        jwt.verify(token, ISSUER.public, now=NOW + 60)


def test_two_jwts_that_differ_in_their_date_alone_say_the_same():
    early = jwt.encode(ISSUER, "s", "n", jwt.account_body(), now=NOW)
    late = jwt.encode(ISSUER, "s", "n", jwt.account_body(), now=NOW + 9)
    other = jwt.encode(ISSUER, "s", "n", jwt.account_body(jetstream=True), now=NOW)

    assert jwt.same_claims(jwt.decode(early), jwt.decode(late))
    assert not jwt.same_claims(jwt.decode(early), jwt.decode(other))


def test_a_service_is_imported_under_its_subject_and_shares_only_where_stated():
    exports = (Export("a.*"), Export("b.>", stream_response=True, share=True))

    assert [e["response_type"] for e in jwt.service_exports(exports)] == ["Singleton", "Stream"]
    plain, shared = jwt.service_imports(exports, "CORE")
    assert plain == {"name": "a.*", "subject": "a.*", "account": "CORE", "type": "service"}
    assert shared["share"] is True


def test_a_scope_states_the_rights_and_allows_plain_connections_only():
    scope = jwt.scope("KEY", "agent", Permissions(("p",), ("s",)), subscriptions=7)

    assert (scope["kind"], scope["key"], scope["role"]) == ("user_scope", "KEY", "agent")
    assert scope["template"]["pub"] == {"allow": ["p"]}
    assert scope["template"]["sub"] == {"allow": ["s"]}
    assert scope["template"]["subs"] == 7
    assert scope["template"]["allowed_connection_types"] == ["STANDARD"]
    assert "resp" not in scope["template"]  # allow_responses would open any reply subject


def test_an_account_has_jetstream_only_when_it_is_given():
    assert jwt.account_body()["limits"]["disk_storage"] == 0
    assert jwt.account_body(jetstream=True)["limits"]["disk_storage"] == jwt.UNLIMITED
