"""Where the value of a setting comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.settings import SETTINGS_FILE, Settings
from postroom.settings.option import Option, ValueKind
from postroom.settings.options import BY_KEY, OPTIONS
from postroom.settings.sources import DEFAULT, ENVIRONMENT, FLAG, STATE, USER, find, load, of_person


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder, and a user without settings."""
    for one in OPTIONS:
        monkeypatch.delenv(one.variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "postroom").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def users(state: Path) -> Path:
    return state.parent / "config" / "postroom" / SETTINGS_FILE


def source(state: Path, key: str, **flags: str) -> tuple[object, str]:
    (found,) = [one for one in find(state, flags) if one.option.key == key]
    return found.value, found.source


@pytest.mark.requirement("settings-precedence")
def test_a_flag_is_before_the_environment_then_the_state_folder_the_user_and_the_default(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    assert source(state, "http.port") == (None, DEFAULT)
    users(state).write_text("[http]\nport = 1\n")
    assert source(state, "http.port") == (1, USER)
    (state / SETTINGS_FILE).write_text("[http]\nport = 2\n")
    assert source(state, "http.port") == (2, STATE)
    monkeypatch.setenv("POSTROOM_HTTP_PORT", "3")
    assert source(state, "http.port") == (3, ENVIRONMENT)
    assert source(state, "http.port", http_port="4") == (4, FLAG)
    assert load(state, {"http_port": "4"}).http_port == 4


@pytest.mark.requirement("settings-precedence")
def test_what_a_command_reads_for_a_person_knows_no_folder_of_a_post_room_elsewhere(
    state: Path, monkeypatch: pytest.MonkeyPatch
):
    def both() -> tuple[object, object]:
        return of_person("screen.notify", state), of_person("screen.notify", None)

    assert both() == ("bell", "bell")
    users(state).write_text('[screen]\nnotify = "osc9"\n')
    assert both() == ("osc9", "osc9")
    (state / SETTINGS_FILE).write_text('[screen]\nnotify = "off"\n')
    assert both() == ("off", "osc9")
    monkeypatch.setenv("POSTROOM_NOTIFY", "osc777")
    assert both() == ("osc777", "osc777")
    monkeypatch.setenv("POSTROOM_NOTIFY", "loud")
    with pytest.raises(InvalidInput, match="POSTROOM_NOTIFY"):
        both()


def test_without_any_choice_all_is_as_by_default(state: Path):
    assert load(state) == Settings(state=state)


def test_an_empty_variable_is_none(state: Path, monkeypatch: pytest.MonkeyPatch):
    for one in OPTIONS:
        monkeypatch.setenv(one.variable, "")
    assert load(state) == Settings(state=state)


CHECKED = {
    "http.public_url": "https://box.example,https://box.example:8443",
    "http.trusted_proxies": "10.0.0.5,2001:db8::/64",
    "retention.projects": "main tasks 30d,main posts 7d 1GiB",
    "webhooks.retry": "300 1800",
}
"""Values of settings that are not any text; the others of them are ages."""


@pytest.mark.parametrize("one", OPTIONS, ids=lambda one: one.key)
def test_each_setting_can_be_chosen_by_its_variable(
    one: Option, state: Path, monkeypatch: pytest.MonkeyPatch
):
    text = one.choices[-1] if one.choices else "0" if one.kind is ValueKind.PORT else "9000000"
    if one.check is not None:
        text = CHECKED.get(one.key, "30d")
    monkeypatch.setenv(one.variable, text)

    assert getattr(load(state), one.field) == one.from_text(text, one.key)


def test_a_path_in_a_file_is_relative_to_that_file(state: Path):
    (state / SETTINGS_FILE).write_text('[tls]\ncert = "tls/own.pem"\nkey = "/k.pem"\n')

    found = load(state)

    assert (found.tls_cert, found.tls_key) == (state / "tls" / "own.pem", Path("/k.pem"))


@pytest.mark.requirement("settings-precedence")
@pytest.mark.parametrize(
    "text, message, remedy",
    [
        ("[http]\nprot = 1\n", "no setting 'http.prot'", "did you mean http.port or "),
        ("port = 1\n", "no setting 'port'", "did you mean nats.port or http.port?"),
        ('[http]\nport = "x"\n', "http.port in ", "port, 0 to 65535"),
        ("[http\n", "is not TOML", ""),
        ("a = " + "[" * 20000, "is not TOML", ""),
    ],
)
@pytest.mark.parametrize("place", [STATE, USER])
def test_a_file_that_says_what_cannot_be_is_refused_by_name(
    state: Path, place: str, text: str, message: str, remedy: str
):
    path = state / SETTINGS_FILE if place == STATE else users(state)
    path.write_text(text)

    with pytest.raises(InvalidInput) as caught:
        load(state)

    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("content", [b"\xff", b"#" * 100_000])
def test_a_file_that_is_no_text_or_far_too_large_is_refused(state: Path, content: bytes):
    (state / SETTINGS_FILE).write_bytes(content)

    with pytest.raises(InvalidInput):
        load(state)


def test_a_folder_in_place_of_the_file_is_told(state: Path):
    (state / SETTINGS_FILE).mkdir()

    with pytest.raises(EnvironmentFault, match="cannot read"):
        load(state)


@pytest.mark.requirement("settings-precedence")
def test_a_secret_in_a_file_that_others_can_read_is_refused(state: Path):
    path = users(state)
    path.write_text('[opensandbox]\nkey = "s3cret"\n')
    path.chmod(0o644)
    with pytest.raises(EnvironmentFault) as caught:
        load(state)
    assert caught.value.remedy == f"chmod 600 {path}"

    path.chmod(0o600)

    assert load(state).opensandbox_key == "s3cret"
    assert "s3cret" not in repr(load(state))
    assert not [one for one in find(state) if "s3cret" in f"{one.text}{one.plain}"]


@pytest.mark.parametrize(
    "key, text",
    [
        ("retention.messages", "30"),
        ("retention.messages", "1d 2d"),
        ("retention.audit", "1GiB"),
        ("retention.projects", "main letters 30d"),
        ("retention.projects", "main messages"),
    ],
)
def test_a_rule_of_retention_that_says_nothing_clear_is_refused_with_its_name(key: str, text: str):
    with pytest.raises(InvalidInput, match=key):
        BY_KEY[key].from_text(text, key)
