"""`postroom config`, which needs no post room."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from postroom.settings.options import OPTIONS
from tests.cli.conftest import Run, environment, spawned


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of configuration, empty."""
    for one in OPTIONS:
        monkeypatch.delenv(one.variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "postroom"


@pytest.mark.requirement("settings-precedence")
def test_list_says_where_each_value_comes_from(
    postroom: Run, user: Path, monkeypatch: pytest.MonkeyPatch
):
    assert postroom("config", "set", "http.port", "1").status == 0
    assert postroom("config", "set", "--user", "nats.port", "2").status == 0
    monkeypatch.setenv("POSTROOM_TLS", "always")

    lines = [line.split() for line in postroom("config", "list").out.splitlines()]

    assert ["http.port", "1", "state", "folder"] in lines
    assert ["nats.port", "2", "user"] in lines
    assert ["tls.mode", "always", "environment"] in lines
    assert ["audit.mode", "strict", "default"] in lines
    assert len(lines) == 1 + len(OPTIONS)
    said = {
        one["key"]: one for one in json.loads(postroom("config", "list", "--json").out)["settings"]
    }
    assert (said["nats.port"]["value"], said["nats.port"]["source"]) == (2, "user")
    assert said["tls.cert"]["value"] is None


def test_a_list_fits_a_narrow_terminal(postroom: Run):
    assert max(map(len, postroom("config", "list").out.splitlines())) <= 80


def test_what_was_set_is_got_until_it_is_unset(postroom: Run, tmp_path: Path):
    assert postroom("config", "get", "nats.url").out == "\n"
    said = postroom("config", "set", "nats.url", "tls://a, tls://b")
    assert said.out == f"nats.url is set in {tmp_path / 'postroom.toml'}\n"
    assert postroom("config", "get", "nats.url").out == "tls://a,tls://b\n"
    assert json.loads(postroom("config", "get", "nats.url", "--json").out)["value"] == [
        "tls://a",
        "tls://b",
    ]

    assert postroom("config", "unset", "nats.url").status == 0

    assert postroom("config", "get", "nats.url").out == "\n"
    assert postroom("config", "unset", "nats.url").status == 4


def test_a_path_is_kept_as_it_was_meant(
    postroom: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path.parent)

    postroom("config", "set", "--user", "tls.cert", "own.pem")

    assert postroom("config", "get", "tls.cert").out == f"{tmp_path.parent / 'own.pem'}\n"


def test_the_file_is_private_and_a_link_to_it_stays(postroom: Run, user: Path, tmp_path: Path):
    user.mkdir(parents=True)
    (tmp_path / "dotfile").write_text("# mine\n")
    (user / "postroom.toml").symlink_to(tmp_path / "dotfile")

    assert postroom("config", "set", "--user", "http.port", "1").status == 0

    assert (tmp_path / "dotfile").read_text() == "# mine\n\n[http]\nport = 1\n"
    assert stat.S_IMODE((tmp_path / "dotfile").stat().st_mode) == 0o600
    assert (user / "postroom.toml").is_symlink()


@pytest.mark.requirement("settings-precedence")
@pytest.mark.parametrize(
    "words, message, remedy",
    [
        (("set", "http.prot", "1"), "no setting 'http.prot'", "did you mean http.port"),
        (("get", "http"), "no setting 'http'", "http.port"),
        (("unset", "x"), "no setting 'x'", "postroom config list"),
        (("set", "http.port", "x"), "http.port is 'x'", "a port, 0 to 65535"),
        (("set", "sandbox.provider", "x"), "sandbox.provider is 'x'", "auto, bubblewrap"),
        (("set", "http.port"), "http.port needs a value", "config set http.port VALUE"),
        (
            ("set", "egress.allow_private", "127.0.0.1"),
            "egress.allow_private: '127.0.0.1' names no port",
            "127.0.0.1:11434",
        ),
        (
            ("set", "egress.allow_private", "127.0.0.1:1-65535"),
            "egress.allow_private: ",
            "",
        ),
        (("set", "http.listen", "0.0.0.0,::"), "nats-server listens on one address", "0.0.0.0"),
        (("set", "a2a.grpc_address", "x:y"), "x:y", ""),
        (("set", "nats.url", "nats://192.0.2.1"), "clear text", "tls://"),
        (("set", "egress.ca", "/nowhere/ca.pem"), "egress.ca: the certificates in /nowhere", "PEM"),
    ],
)
def test_an_unknown_setting_and_a_bad_value_are_refused(
    postroom: Run, tmp_path: Path, words: tuple[str, ...], message: str, remedy: str
):
    ended = postroom("config", *words)

    assert ended.status == 2
    assert message in ended.err.splitlines()[0]
    assert remedy in ended.err.splitlines()[1]
    assert not (tmp_path / "postroom.toml").exists()


def test_a_program_that_cannot_be_run_is_refused(postroom: Run, tmp_path: Path):
    ended = postroom("config", "set", "nats.server", "/nowhere/nats-server")

    assert ended.status == 10
    assert "/nowhere/nats-server, which cannot be run" in ended.err
    assert not (tmp_path / "postroom.toml").exists()


@pytest.mark.requirement("settings-precedence")
def test_a_secret_comes_by_the_standard_input_and_is_never_shown(postroom: Run, tmp_path: Path):
    state = ("--state", str(tmp_path))
    refused = spawned(["config", "set", "opensandbox.key", "s3cret", *state], env=environment())
    assert (refused.status, refused.err.count("s3cret")) == (2, 0)

    set_ = spawned(
        ["config", "set", "opensandbox.key", *state], stdin="s3cret\n", env=environment()
    )

    assert set_.status == 0
    assert 'key = "s3cret"' in (tmp_path / "postroom.toml").read_text()
    shown = [postroom("config", *words) for words in (("list",), ("list", "--json"))]
    shown += [postroom("config", "get", "opensandbox.key"), set_]
    assert not [one for one in shown if "s3cret" in one.out + one.err]
    assert "(secret)" in shown[0].out


def test_a_variable_that_counts_first_is_told(postroom: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSTROOM_TLS", "always")

    assert "POSTROOM_TLS is set here, too" in postroom("config", "set", "tls.mode", "auto").err


def test_a_broken_file_is_told_and_not_changed(postroom: Run, tmp_path: Path):
    file = tmp_path / "postroom.toml"
    file.write_text("[http\n")

    for words in (("list",), ("get", "http.port"), ("set", "http.port", "1")):
        ended = postroom("config", *words)
        assert ended.status == 2
        assert f"{file} is not TOML" in ended.err
    assert file.read_text() == "[http\n"


def test_a_setting_can_be_mended_beside_another_that_is_wrong(postroom: Run, tmp_path: Path):
    (tmp_path / "postroom.toml").write_text('[egress]\nallow_private = ["127.0.0.1"]\n')

    assert postroom("config", "set", "http.port", "1").status == 0
    assert postroom("config", "set", "egress.allow_private", "127.0.0.1:80").status == 0
