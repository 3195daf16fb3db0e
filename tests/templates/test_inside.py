"""Programs that are found, inside the sandbox: what `program_mounts` shows is enough, and is all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom
from tests.templates.machine import link, package
from tests.templates.npm import NODE, WHEEL

TEMPLATE = """
[worker]
name = "{nick}"
[workstation]
command = ["{program}", "--version"]
adapter = "text"
env = { PATH = "{program_path}${PATH}" }
[compute]
read_only = ["{program_mounts}"]
[program]
name = "agent"
install = "npm install -g agent"
[overrides]
nick = ""
program = ""
program_path = ""
program_mounts = ""
"""

# As Codex of npm: a script for node that starts the native program of the package for this platform.
SCRIPT = """#!/usr/bin/env node
const path = require("path"), fs = require("fs"), child = require("child_process");
const native = path.join(path.dirname(require.resolve("agent-linux/package.json")), "agent");
const said = child.spawnSync(native, process.argv.slice(2), { encoding: "utf8" });
console.log(JSON.stringify({
  node: process.version,
  native: said.stdout.trim(),
  beside: fs.readdirSync(path.join(__dirname, "..", "..")).sort(),
  npm: child.spawnSync("npm", ["--version"], { encoding: "utf8" }).status,
}));
"""


@pytest.fixture
def room() -> Iterator[PostRoom]:
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.env["PATH"] = "/bin"  # no node there
        room.up()
        try:
            yield room
        finally:
            room.call("down")


@pytest.mark.requirement("template-programs-found")
def test_a_script_of_nvm_runs_with_its_node_and_its_platforms_package_and_sees_no_other(
    room: PostRoom,
):
    prefix = room.scratch / ".nvm" / "versions" / "node" / "v24.1.0"
    modules = prefix / "lib" / "node_modules"
    (prefix / "bin").mkdir(parents=True)
    try:
        os.link(NODE, prefix / "bin" / "node")
    except OSError:  # another file system
        shutil.copy2(NODE, prefix / "bin" / "node")
    shutil.copytree(WHEEL / "lib" / "node_modules" / "npm", modules / "npm")
    link(prefix / "bin" / "npm", modules / "npm" / "bin" / "npm-cli.js")
    own = package(modules, "agent", needs={"agent-linux": "1"}, program="agent.js", content=SCRIPT)
    native = package(modules, "agent-linux") / "agent"
    native.write_text("#!/bin/sh\necho native $1\n")
    native.chmod(0o755)
    package(modules, "other-agent")
    (room.scratch / ".ssh").mkdir()
    link(prefix / "bin" / "agent", own / "bin" / "agent.js")

    room.run("spawn", room.template(TEMPLATE, "agent"), "--set", "nick=agent")

    said = json.loads(room.run("send", "@agent", "go", "--wait", "answered"))
    assert said["node"].startswith("v24.")
    assert said["native"] == "native --version"
    assert said["beside"] == ["agent", "agent-linux", "npm"]
    assert said["npm"] == 0


def test_a_native_program_is_shown_as_a_single_file(room: PostRoom):
    real = room.scratch / ".local" / "share" / "agent" / "versions" / "2.1.0"
    real.parent.mkdir(parents=True)
    real.write_text(
        "#!/usr/bin/env python3\nimport os\nprint(os.listdir(os.path.dirname(__file__)))\n"
    )
    real.chmod(0o755)
    (real.parent / "2.0.9").write_text("the one before")
    link(room.scratch / ".local" / "bin" / "agent", real)
    room.run("spawn", room.template(TEMPLATE, "agent"), "--set", "nick=agent")
    assert room.run("send", "@agent", "go", "--wait", "answered").strip() == "['2.1.0']"
