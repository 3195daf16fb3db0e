from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from postroom.errors import (
    Conflict,
    InvalidInput,
    InvalidName,
    NotFound,
    StateUnwritable,
    Unauthorized,
)
from postroom.identity import jwt, nkeys
from postroom.identity.keyring import FILE
from postroom.identity.minting import MAX_LIFETIME, MAX_PROJECTS
from postroom.identity.nkeys import KeyPair, Kind
from postroom.identity.trust import Trust
from postroom.protocol.permissions import agent_permissions, core_exports
from tests.identity.stage import ALICE, LOBBY, VAULT, mint

NOW = 1_795_000_000.0


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _edge(trust: Trust) -> jwt.Claims:
    return jwt.decode(trust.account_jwts()[trust.edge_account])


@pytest.mark.requirement("identity-keys-private")
def test_the_keys_are_kept_where_only_their_owner_can_read(tmp_path: Path):
    Trust.load_or_create(tmp_path / "keys")

    assert _mode(tmp_path / "keys") == 0o700
    assert _mode(tmp_path / "keys" / FILE) == 0o600
    assert [file.name for file in (tmp_path / "keys").iterdir()] == [FILE]


@pytest.mark.requirement("identity-keys-private")
def test_permissions_that_are_too_open_are_narrowed(tmp_path: Path):
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o755)
    Trust.load_or_create(folder)
    folder.chmod(0o755)
    (folder / FILE).chmod(0o644)

    Trust.load_or_create(folder)

    assert (_mode(folder), _mode(folder / FILE)) == (0o700, 0o600)


def test_the_same_folder_gives_the_same_accounts_again(tmp_path: Path):
    first, again = Trust.load_or_create(tmp_path), Trust.load_or_create(tmp_path)

    assert first.system_account == again.system_account
    assert first.account_jwts().keys() == again.account_jwts().keys()
    assert first.core_account != Trust.load_or_create(tmp_path / "other").core_account


def test_a_second_organisation_has_its_own_accounts_under_the_same_operator(tmp_path: Path):
    first, other = Trust.load_or_create(tmp_path), Trust.load_or_create(tmp_path, "other")

    assert first.system_account == other.system_account
    assert {first.core_account, first.edge_account} & {
        other.core_account,
        other.edge_account,
    } == set()
    assert len(other.account_jwts()) == 5


def test_a_malformed_organisation_is_refused_and_makes_nothing(tmp_path: Path):
    with pytest.raises(InvalidName):
        Trust.load_or_create(tmp_path / "keys", "../x")
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 99}', '"SUAC"']
)
def test_a_damaged_file_of_keys_is_reported_and_left_alone(tmp_path: Path, content: str):
    (tmp_path / FILE).write_text(content)

    with pytest.raises(InvalidInput, match=FILE):
        Trust.load_or_create(tmp_path)
    assert (tmp_path / FILE).read_text() == content


def test_a_key_of_the_wrong_kind_in_the_file_is_refused(tmp_path: Path):
    Trust.load_or_create(tmp_path)
    document = json.loads((tmp_path / FILE).read_text())
    document["operator"] = document["system"]
    (tmp_path / FILE).write_text(json.dumps(document))

    with pytest.raises(InvalidInput, match="ACCOUNT, not OPERATOR"):
        Trust.load_or_create(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_unwritable_state(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(StateUnwritable):
        Trust.load_or_create(tmp_path / "file" / "keys")


def test_the_operator_names_the_system_account_and_signs_every_account(trust: Trust):
    operator = jwt.decode(trust.operator_jwt)

    assert operator["nats"]["system_account"] == trust.system_account
    assert operator["iss"] == operator["sub"]
    for account, token in trust.account_jwts().items():
        assert jwt.verify(token, operator["sub"], now=NOW)["sub"] == account


def test_only_core_has_jetstream(trust: Trust):
    def storage(account: str) -> tuple[int, int]:
        limits = jwt.decode(trust.account_jwts()[account])["nats"]["limits"]
        return limits["disk_storage"], limits["mem_storage"]

    assert storage(trust.core_account) == (-1, -1)
    assert storage(trust.edge_account) == storage(trust.system_account) == (0, 0)


def test_edge_imports_from_core_exactly_what_core_exports(trust: Trust):
    core = jwt.decode(trust.account_jwts()[trust.core_account])["nats"]
    edge = _edge(trust)["nats"]

    exported = [export["subject"] for export in core["exports"]]
    assert exported == [export.subject for export in core_exports()]
    assert [imported["subject"] for imported in edge["imports"]] == exported
    assert {imported["account"] for imported in edge["imports"]} == {trust.core_account}
    shared = [imported["subject"] for imported in edge["imports"] if imported.get("share")]
    assert shared == ["ctl.*.>"]


def test_the_agents_scope_has_the_rights_of_the_table(trust: Trust):
    scope = _edge(trust)["nats"]["signing_keys"][0]

    assert scope["role"] == "agent"
    assert scope["template"]["pub"]["allow"] == list(agent_permissions().publish)
    assert scope["template"]["sub"]["allow"] == list(agent_permissions().subscribe)


def test_an_agents_credential_names_it_its_projects_and_its_end_and_no_rights(trust: Trust):
    credential = trust.mint_agent(ALICE, [VAULT, LOBBY, LOBBY], lifetime=60.0, now=NOW)
    claims = jwt.decode(credential.jwt)

    assert (claims["name"], claims["sub"]) == (ALICE, credential.public)
    assert (claims["iat"], claims["exp"]) == (int(NOW), int(NOW) + 60)
    assert claims["nats"] == {
        "type": "user",
        "version": 2,
        "issuer_account": trust.edge_account,
        "pub": {},
        "sub": {},
        "tags": [f"project:{LOBBY}", f"project:{VAULT}"],
    }
    assert (credential.name, credential.expires_at) == (ALICE, NOW + 60)


def test_each_minted_credential_has_a_new_key(trust: Trust):
    one, other = (trust.mint_agent(ALICE, [], lifetime=60.0, now=NOW) for _ in range(2))

    assert one.public != other.public


def test_a_credential_does_not_show_its_seed(trust: Trust):
    credential = trust.mint_agent(ALICE, [], lifetime=60.0, now=NOW)

    assert credential.seed not in repr(credential)
    assert credential.seed not in repr(trust)


def test_a_credential_signs_the_servers_nonce_as_its_client_library_wants_it(trust: Trust):
    credential = trust.mint_agent(ALICE, [], lifetime=60.0, now=NOW)

    assert nkeys.verify(credential.public, b"nonce", credential.sign(b"nonce"))
    shown = credential.for_connection()
    assert shown.sign(b"nonce") == credential.sign(b"nonce")
    assert shown.jwt is not None
    assert shown.jwt() == credential.jwt


@pytest.mark.parametrize("lifetime", [0.0, -1.0, MAX_LIFETIME + 1, float("nan"), float("inf")])
def test_a_lifetime_out_of_bounds_is_refused(trust: Trust, lifetime: float):
    with pytest.raises(InvalidInput):
        trust.mint_agent(ALICE, [], lifetime=lifetime, now=NOW)


def test_more_projects_than_fit_the_connect_line_are_refused(trust: Trust):
    with pytest.raises(InvalidInput):
        trust.mint_agent(ALICE, [f"p{n}" for n in range(MAX_PROJECTS + 1)], lifetime=60.0, now=NOW)


@pytest.mark.parametrize("kind", [Kind.ACCOUNT, Kind.OPERATOR])
def test_only_a_users_key_can_be_renewed_or_revoked(trust: Trust, kind: Kind):
    key = KeyPair.generate(kind).public

    with pytest.raises(InvalidInput):
        trust.renew(key, ALICE, [], lifetime=60.0, now=NOW)
    with pytest.raises(InvalidInput):
        trust.revoke({key: NOW + 60.0}, now=NOW)


def test_a_renewal_keeps_the_key_and_moves_the_end(trust: Trust):
    old = trust.mint_agent(ALICE, [LOBBY], lifetime=60.0, now=NOW)

    token = trust.renew(old.public, ALICE, [LOBBY], lifetime=60.0, now=NOW + 50)

    agents = jwt.decode(old.jwt)["iss"]
    assert jwt.verify(token, agents, now=NOW + 100)["sub"] == old.public
    with pytest.raises(Unauthorized):
        jwt.verify(old.jwt, agents, now=NOW + 100)


def test_a_revocation_is_in_the_edge_account_and_survives_a_restart(tmp_path: Path):
    trust = Trust.load_or_create(tmp_path)
    revoked = trust.mint_agent(ALICE, [], lifetime=60.0, now=NOW).public
    assert _edge(trust)["nats"]["revocations"] == {}

    trust.revoke({revoked: NOW + 60.0}, now=NOW)

    expected = {revoked: int(NOW)}
    assert _edge(trust)["nats"]["revocations"] == expected
    assert _edge(Trust.load_or_create(tmp_path))["nats"]["revocations"] == expected


def test_a_revocation_is_forgotten_when_nothing_it_voids_can_be_valid(trust: Trust):
    old, new = (KeyPair.generate(Kind.USER).public for _ in range(2))

    trust.revoke({old: NOW + 60.0}, now=NOW)
    trust.revoke({new: NOW + 240.0}, now=NOW + 180.0)

    assert list(_edge(trust)["nats"]["revocations"]) == [new]


def test_each_revocation_dates_the_account_later_than_the_one_before(tmp_path: Path):
    """A starting server that has two of one date takes the one of its configuration."""
    now = time.time()
    trust = Trust.load_or_create(tmp_path, clock=lambda: now)
    dates = [_edge(trust)["iat"]]

    for _ in range(3):
        trust.revoke({KeyPair.generate(Kind.USER).public: now + 60.0}, now=now)
        dates.append(_edge(trust)["iat"])

    assert dates == sorted(set(dates))


def test_a_revocation_that_cannot_be_kept_is_not_made(tmp_path: Path):
    folder = tmp_path / "keys"
    trust = Trust.load_or_create(folder)
    (folder / FILE).unlink()
    folder.rmdir()
    folder.touch()

    with pytest.raises(StateUnwritable):
        trust.revoke({KeyPair.generate(Kind.USER).public: NOW + 60.0}, now=NOW)
    assert _edge(trust)["nats"]["revocations"] == {}


@pytest.mark.requirement("a2a-http-card")
def test_the_card_key_is_kept(tmp_path: Path):
    first = Trust.load_or_create(tmp_path).card_key
    assert Trust.load_or_create(tmp_path).card_key == first
    assert (tmp_path / "trust.json").stat().st_mode & 0o777 == 0o600


# ── organisations ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("org-create-whole")
def test_what_one_organisation_changes_in_the_keys_another_does_not_save_away(tmp_path: Path):
    trust = Trust.load_or_create(tmp_path)
    acme = trust.add_org("acme")
    revoked = mint(acme, ALICE)
    public = str(jwt.decode(revoked.jwt)["sub"])

    acme.revoke({public: time.time() + 60.0}, now=time.time())
    trust.add_org("zeta")
    trust.revoke({mint(trust, ALICE).public: time.time() + 60.0}, now=time.time())

    again = Trust.load_or_create(tmp_path)
    assert again.orgs == ("default", "acme", "zeta")
    claims = jwt.decode(again.of("acme").account_jwts()[acme.edge_account])
    assert list(claims["nats"]["revocations"]) == [public]
    assert acme.orgs == again.orgs


def test_an_organisation_of_a_name_that_there_is_is_a_conflict(tmp_path: Path):
    trust = Trust.load_or_create(tmp_path)
    core = trust.core_account

    with pytest.raises(Conflict):
        trust.add_org("default")

    assert Trust.load_or_create(tmp_path).core_account == core


@pytest.mark.requirement("org-create-whole")
def test_the_accounts_of_a_removed_organisation_are_remembered_until_the_server_has_forgotten_them(
    tmp_path: Path,
):
    trust = Trust.load_or_create(tmp_path)
    acme = trust.add_org("acme")
    accounts = (acme.core_account, acme.edge_account)

    trust.remove_org("acme")

    again = Trust.load_or_create(tmp_path)
    assert again.orgs == ("default",)
    assert again.gone == accounts
    assert not set(accounts) & set(again.account_jwts())
    again.forgotten(accounts)
    assert Trust.load_or_create(tmp_path).gone == ()
    with pytest.raises(NotFound):
        again.of("acme")
    assert again.add_org("acme").core_account not in accounts
