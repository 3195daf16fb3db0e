from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import InvalidInput
from postroom.sandbox.bubblewrap_program import candidates
from postroom.sidecar.config import SidecarConfig, load

RECORD = {
    "uid": "a" * 32,
    "nick": "reader",
    "state": "/state",
    "message_secret": "ab" * 16,
    "seed": "SUSECRETSEED",
    "jwt": "jwt.secret",
    "token": "bearersecret",
    "jwt_expires_at": None,
    "agent": {"command": ["agent"], "adapter": "text"},
}


def test_a_configuration_is_read_and_removed(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(RECORD | {"project": "main"}))

    config = load(path)
    assert not path.exists()
    assert config.projects == ("main",)
    assert config.agent.confirm == "explicit"
    assert config.jwt_expires_at == 0


def test_one_that_is_not_valid_is_removed_too_and_its_secrets_are_not_repeated(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(RECORD)[:-1])

    with pytest.raises(InvalidInput) as caught:
        load(path)
    assert not path.exists()
    assert "SECRET" not in repr(caught.value) + repr(caught.value.__cause__)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "*"},
        {"message_secret": "zz"},
        {"message_secret": "ab"},
        {"log_level": "loud"},
        {"project": "a.b"},
        {"projects": ["main", ">"]},
        {"jwt_expires_at": "soon"},
        {"agent": None},
        {"agent": {"command": []}},
        {"agent": {"command": "ls"}},
        {"agent": {"command": ["a\0b"]}},
        {"agent": {"command": ["a"], "adapter": "telepathy"}},
        {"agent": {"command": ["a"], "confirm": "never"}},
        {"agent": {"command": ["a"], "env": {"A": 1}}},
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any]):
    with pytest.raises(InvalidInput):
        SidecarConfig.parse(RECORD | change)


@pytest.mark.parametrize("missing", ["uid", "nick", "state", "message_secret", "agent"])
def test_a_missing_value_is_refused(missing: str):
    with pytest.raises(InvalidInput):
        SidecarConfig.parse({k: v for k, v in RECORD.items() if k != missing})


def test_its_representation_shows_no_secret():
    text = repr(SidecarConfig.parse(RECORD))

    for secret in ("SUSECRETSEED", "jwt.secret", "bearersecret", repr(b"\xab" * 16)):
        assert secret not in text


HARDENED = """
import os, subprocess, sys
from postroom.sidecar.walls import harden
if sys.argv[1] == "hardened":
    harden()
peek = '''
import os, sys
for name in ("environ", "mem", "maps"):
    path = f"/proc/{os.getppid()}/{name}"
    try:
        open(path, "rb").close()
        print(name)
    except PermissionError:
        pass
'''
print(subprocess.run([sys.executable, "-c", peek], capture_output=True, text=True).stdout.split())
import resource
print(resource.getrlimit(resource.RLIMIT_CORE)[0] == 0)
"""


@pytest.mark.requirement("wall-sidecar-closed")
@pytest.mark.skipif(sys.platform != "linux", reason="procfs")
@pytest.mark.parametrize("how, readable", [("hardened", []), ("plain", ["environ", "mem", "maps"])])
def test_a_process_of_the_same_user_cannot_read_the_sidecars_environment_or_memory(
    how: str, readable: list[str]
):
    """The plain run shows that the same look succeeds without it. Neither has capabilities, as in a sandbox."""
    (bwrap, *_) = candidates()
    wall = [str(bwrap), "--unshare-user", "--uid", "12345", "--gid", "12345", "--cap-drop", "ALL"]
    env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [*wall, "--dev-bind", "/", "/", sys.executable, "-c", HARDENED, how],
        capture_output=True,
        text=True,
        env=env,
        timeout=30,
        check=True,
    )

    assert done.stdout.splitlines()[0] == str(readable)
    if how == "hardened":
        assert done.stdout.splitlines()[1] == "True"


def test_the_token_of_execd_is_taken_from_a_file_that_is_gone_then(tmp_path: Path):
    path, token = tmp_path / "c.json", tmp_path / "execd"
    token.write_text("its.secret")
    path.write_text(json.dumps(RECORD | {"execd": {"port": 44772, "token_file": str(token)}}))

    config = load(path)
    assert config.execd is not None
    assert (config.execd.port, config.execd.token) == (44772, "its.secret")
    assert not token.exists()
    assert "its.secret" not in repr(config)
