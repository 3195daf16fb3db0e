"""`postroom login`: whom it trusts, where the key is, and where commands go afterwards."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend

from postroom.cli.root import run
from postroom.client import keychain, logins
from postroom.client.logins import Login, Logins
from postroom.errors import EnvironmentFault
from postroom.identity.certfolder import CertificateFolder
from postroom.identity.privatefile import replace
from postroom.tls import server_context
from tests.cli.conftest import Ended
from tests.client.standin import ME, Standin, principal, status

KEY = "a2a_" + "a" * 32 + "_" + "b" * 64


class Person:
    """Somebody on another machine: a home of their own, and the commands."""

    def __init__(self, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.file = home / "config" / "postroom" / "logins.json"
        self._capfd = capfd
        self.key = home / "key"
        replace(self.key, f"{KEY}\n".encode(), sync=False)

    def run(self, *words: str, status: int = 0) -> Ended:
        code = run(list(words))
        said = self._capfd.readouterr()
        assert code == status, said
        return Ended(code, said.out, said.err)

    def login(self, *words: str, status: int = 0) -> Ended:
        return self.run("login", *words, "--key-file", str(self.key), status=status)


@pytest.fixture
def person(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Person:
    for variable in ("POSTROOM_URL", "POSTROOM_STATE", "POSTROOM_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(keychain, "_keyring", lambda: None)
    return Person(tmp_path, capfd)


def authority(folder: Path) -> CertificateFolder:
    made = CertificateFolder(folder)
    made.init((), days=90, now=time.time())
    return made


def far(folder: CertificateFolder | None) -> Standin:
    """A post room of another machine, with the certificate of `folder`."""
    server = Standin()
    server.token = KEY
    server.answer("GET /v1/me", principal(ME))
    server.answer("GET /v1/status", status())
    if folder is not None:
        _, pem = folder.files.read()
        context = server_context(_written(folder.folder / "shown.pem", pem))
        server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
        server.url = server.url.replace("http:", "https:")
    return server


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return authority(tmp_path / "tls")


@pytest.fixture
def room(folder: CertificateFolder) -> Iterator[Standin]:
    server = far(folder)
    yield server
    server.close()


@pytest.fixture
def near() -> Iterator[Standin]:
    """One that is reached without TLS: at the end of a tunnel."""
    server = far(None)
    yield server
    server.close()


@pytest.mark.requirement("tls-beyond-loopback")
def test_a_login_trusts_the_authority_whose_fingerprint_was_given_and_commands_go_there(
    person: Person, room: Standin, folder: CertificateFolder
):
    said = person.login(room.url, "--fingerprint", folder.authority().fingerprint)

    assert "you are @alice" in said.out
    person.run("status")
    assert room.calls("GET /v1/status")
    assert json.loads(person.run("login", "--list", "--json").out)["logins"] == [
        {
            "name": "127-0-0-1",
            "url": room.url,
            "nick": "alice",
            "org": "",
            "fingerprint": folder.authority().fingerprint,
            "keyring": False,
            "default": True,
        }
    ]


@pytest.mark.requirement("tls-beyond-loopback")
def test_an_authority_that_nobody_confirms_is_shown_and_gets_no_key(
    person: Person, room: Standin, folder: CertificateFolder
):
    said = person.login(room.url, status=2)

    assert folder.authority().fingerprint in said.err
    assert "--fingerprint" in said.err
    assert room.requests == []
    assert not person.file.exists()


@pytest.mark.requirement("tls-beyond-loopback")
def test_another_fingerprint_than_the_one_shown_gets_no_key(person: Person, room: Standin):
    said = person.login(room.url, "--fingerprint", "ab:" * 31 + "ab", status=8)

    assert "somebody may sit in between" in said.err
    assert room.requests == []


@pytest.mark.requirement("tls-beyond-loopback")
def test_who_shows_the_true_authority_above_a_certificate_of_another_gets_no_key(
    person: Person, folder: CertificateFolder, tmp_path: Path
):
    other = authority(tmp_path / "other")
    _, pem = other.files.read()
    chain = pem.replace(other.ca.read_bytes(), b"") + folder.ca.read_bytes()
    forged = Standin()
    context = server_context(_written(tmp_path / "forged.pem", chain))
    forged._http.socket = context.wrap_socket(forged._http.socket, server_side=True)
    url = forged.url.replace("http:", "https:")

    person.login(url, "--fingerprint", folder.authority().fingerprint, status=8)

    assert forged.requests == []
    assert not person.file.exists()
    forged.close()


@pytest.mark.requirement("tls-beyond-loopback")
def test_later_a_certificate_of_another_authority_is_refused_with_what_to_do(
    person: Person, room: Standin, folder: CertificateFolder, tmp_path: Path
):
    person.login(room.url, "--fingerprint", folder.authority().fingerprint)
    impostor = far(authority(tmp_path / "other"))
    record = person.file.read_text().replace(room.url, impostor.url)
    replace(person.file, record.encode(), sync=False)

    said = person.run("status", status=8)

    assert "is not the post room" in said.err
    assert f"postroom login {impostor.url}" in said.err
    assert impostor.requests == []
    impostor.close()


@pytest.mark.requirement("tls-beyond-loopback")
def test_a_renewed_certificate_of_the_pinned_authority_is_taken(
    person: Person, room: Standin, folder: CertificateFolder
):
    person.login(room.url, "--fingerprint", folder.authority().fingerprint)
    folder.renew(now=time.time())
    later = far(folder)
    record = person.file.read_text().replace(room.url, later.url)
    replace(person.file, record.encode(), sync=False)

    person.run("status")

    assert later.calls("GET /v1/status")
    later.close()


@pytest.mark.requirement("tls-beyond-loopback")
def test_the_file_is_private_and_one_that_is_not_is_refused(person: Person, near: Standin):
    person.login(near.url)
    assert person.file.stat().st_mode & 0o777 == 0o600
    assert person.file.parent.stat().st_mode & 0o777 == 0o700
    assert KEY in person.file.read_text()

    person.file.chmod(0o644)
    assert f"chmod 600 {person.file}" in person.run("status", status=10).err


def test_a_key_that_is_not_taken_is_not_kept(person: Person, near: Standin):
    near.token = "another"

    person.login(near.url, status=6)

    assert not person.file.exists()


def test_a_key_comes_from_standard_input_and_never_from_a_file_that_others_read(
    person: Person, near: Standin, monkeypatch: pytest.MonkeyPatch
):
    person.key.chmod(0o640)
    assert "chmod 600" in person.login(near.url, status=2).err

    reading, writing = os.pipe()
    os.write(writing, f"{KEY}\n".encode())
    os.close(writing)
    with os.fdopen(reading) as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        assert "@alice" in person.run("login", near.url).out


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"caf\xc3\xa9", b"a" * 600])
def test_what_is_no_key_is_refused(person: Person, near: Standin, content: bytes):
    replace(person.key, content, sync=False)

    person.login(near.url, status=2)

    assert near.requests == []


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:4280", "https://box.example/postroom", "box.example", "https://u@b"]
)
def test_a_url_that_is_no_post_rooms_is_refused_before_a_key_is_read(person: Person, url: str):
    person.key.unlink()

    person.login(url, status=2)


@pytest.mark.requirement("identity-keys-private")
def test_a_login_over_plain_http_says_what_it_trusts(person: Person, near: Standin):
    said = person.login(near.url).err
    assert f"{near.url} is plain HTTP: your key goes to whatever program" in said
    assert "needs no login" in said
    assert all(len(line) <= 110 for line in said.splitlines())


@pytest.mark.requirement("login-names-the-room")
def test_what_is_typed_counts_before_the_environment_and_that_before_the_default(
    person: Person, near: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    others = {name: far(None) for name in ("state", "typed", "variable")}
    state = tmp_path / "here"
    state.mkdir()
    others["state"].announce(state)
    for name in ("variable", "typed"):
        person.login(others[name].url, "--name", name)
    person.login(near.url, "--name", "usual")

    def asked(*words: str) -> str:
        for each in (near, *others.values()):
            each.requests.clear()
        person.run(*words)
        found = [name for name, each in (("usual", near), *others.items()) if each.requests]
        return " ".join(found)

    assert asked("status") == "usual"
    assert asked("status", "--state", str(state)) == "state"
    assert asked("status", "--url", "typed") == "typed"
    assert asked("--url", others["typed"].url, "status") == "typed"
    monkeypatch.setenv("POSTROOM_STATE", str(state))
    assert asked("status") == "state"
    monkeypatch.setenv("POSTROOM_URL", others["variable"].url)
    assert asked("status") == "variable"
    assert asked("status", "--url", "typed") == "typed"
    assert asked("status", "--url", "local") == "state"
    assert asked("status", "--state", str(state)) == "state"
    person.run("status", "--state", str(state), "--url", "typed", status=2)
    for each in others.values():
        each.close()


@pytest.mark.requirement("login-names-the-room")
@pytest.mark.parametrize(
    "words",
    [
        ("up", "--detach"),
        ("down",),
        ("admin", "rebuild"),
        ("backup", "file", "--passphrase-file", "key"),
        ("restore", "file", "--passphrase-file", "key"),
        ("config", "get", "http.port"),
        ("tls", "status"),
        ("nats", "config"),
    ],
)
def test_what_works_on_this_machine_alone_says_so_and_does_nothing(
    person: Person, near: Standin, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(person.home)
    (person.home / "file").touch()
    person.login(near.url)
    near.requests.clear()

    said = person.run(*words, status=2)

    assert "works on a post room of this machine" in said.err
    assert "--url local" in said.err
    assert "without --url" in person.run(*words, "--url", near.url, status=2).err
    assert near.requests == []
    assert not (person.home / "state").exists()


def test_logout_forgets_the_key_and_commands_are_for_this_machine_again(
    person: Person, near: Standin
):
    person.login(near.url, "--name", "far")
    person.run("logout")

    assert KEY not in person.file.read_text()
    person.run("status", status=3)
    person.run("logout", status=4)
    person.run("status", "--url", near.url, status=6)


def test_commands_can_be_sent_to_this_machine_and_back(person: Person, near: Standin):
    person.login(near.url, "--name", "far")

    person.run("login", "--use", "local")
    person.run("status", status=3)
    person.run("login", "--use", "far")
    person.run("status")
    person.run("login", "--use", "nobody", status=4)
    person.run("login", "--name", "local", near.url, status=2)


def test_a_login_of_an_organisation_goes_to_that_one(person: Person, near: Standin):
    near.answer("GET /orgs/research/v1/me", principal(ME))
    near.answer("GET /orgs/research/v1/status", status())

    person.login(near.url, "--org", "research")
    person.run("status")

    assert near.calls("GET /orgs/research/v1/status")
    assert not near.calls("GET /v1/status")


def test_one_place_has_one_key():
    first, second = Login("a", "https://box", "k1"), Login("b", "https://box", "k2")
    found = Logins().with_login(first).with_login(second)

    assert list(found.entries) == ["b"]
    assert found.with_login(Login("c", "https://box", "k3", org="x")).entries.keys() == {"b", "c"}


COUNTER = {"uid": "c" * 32, "nick": "counter", "kind": "external"}


@pytest.mark.requirement("login-names-the-room")
def test_the_key_of_a_program_is_kept_beside_your_own_and_commands_go_where_they_went(
    person: Person, near: Standin
):
    near.answer("GET /v1/me", principal(COUNTER))
    person.login(near.url)

    said = person.login(near.url, "--name", "bot").out

    assert f"a key of @counter at {near.url}" in said
    assert f"commands go to {near.url} as @alice (127-0-0-1), as before" in said
    listed = json.loads(person.run("login", "--list", "--json").out)["logins"]
    assert [(each["name"], each["default"]) for each in listed] == [
        ("127-0-0-1", True),
        ("bot", False),
    ]
    assert logins.read().find("bot").key == KEY
    # Without a name it has its nick, and your own login is safe from it.
    assert "Agent('counter')" in person.login(near.url).out
    assert "your own login" in person.login(near.url, "--name", "127-0-0-1", status=5).err
    person.run("login", "--use", "local")
    assert logins.read().find(near.url).name == "127-0-0-1"


@pytest.mark.requirement("login-names-the-room")
def test_commands_go_to_the_login_of_a_program_where_that_is_said(person: Person, near: Standin):
    near.answer("GET /v1/me", principal(COUNTER))
    person.login(near.url, "--use", "local")

    assert "commands go to the post room of this machine" in person.login(near.url).out
    person.run("status", status=3)
    assert "you are @counter" in person.login(near.url, "--use", "counter").out
    person.run("status")


@pytest.mark.requirement("login-names-the-room")
def test_your_own_login_need_not_be_where_commands_go(person: Person, near: Standin):
    said = person.login(near.url, "--use", "local").out

    assert "a key of @alice" in said
    assert "commands go to the post room of this machine" in said
    person.run("status", status=3)


class Kept(KeyringBackend):
    """A keyring of the system, in memory."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise RuntimeError("locked")
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture
def kept(person: Person, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.undo()
    before, backend = keyring.get_keyring(), Kept()
    keyring.set_keyring(backend)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(person.home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(person.home / "state"))
    yield backend
    keyring.set_keyring(before)


@pytest.mark.requirement("tls-beyond-loopback")
def test_where_the_system_has_a_keyring_the_key_is_there_and_in_no_file(
    person: Person, near: Standin, kept: Kept
):
    assert "the keyring of this system" in person.login(near.url).out

    assert kept.entries == {("postroom", near.url): KEY}
    assert KEY not in person.file.read_text()
    person.run("status")
    kept.locked = True
    assert "unlock the keyring" in person.run("status", status=10).err
    kept.locked = False
    person.run("logout")
    assert kept.entries == {}


def test_in_a_keyring_a_program_has_a_key_beside_yours(person: Person, near: Standin, kept: Kept):
    near.answer("GET /v1/me", principal(COUNTER))
    person.login(near.url)
    person.login(near.url)

    assert set(kept.entries) == {("postroom", near.url), ("postroom", f"{near.url}#counter")}
    person.run("logout", "counter")
    assert set(kept.entries) == {("postroom", near.url)}


def test_a_keyring_that_keeps_nothing_or_in_the_clear_is_not_used(
    person: Person, near: Standin, kept: Kept, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Kept, "priority", 0.5)

    assert "a file that only you can read" in person.login(near.url).out

    assert kept.entries == {}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"default": "", "logins": [{"name": 3}]}'])
def test_a_damaged_file_is_named(person: Person, content: str):
    person.file.parent.mkdir(parents=True)
    replace(person.file, content.encode(), sync=False)

    with pytest.raises(EnvironmentFault, match=r"logins\.json"):
        logins.read()
