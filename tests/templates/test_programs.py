from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import EnvironmentFault, NotFound
from postroom.sandbox.policy import WHOLE_FOLDERS
from postroom.templates.programs import find
from tests.templates.machine import executable, link, machine, node, package

SCRIPT = "#!/usr/bin/env node\nconsole.log('hello')\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.requirement("template-programs-found")
def test_a_global_program_of_npm_is_its_package_and_the_one_for_this_platform(home: Path):
    modules = home / "npm" / "lib" / "node_modules"
    own = package(modules, "@maker/agent", needs={"@maker/agent-linux": "1"}, program="agent")
    platform = package(own / "node_modules", "@maker/agent-linux")
    path = link(home / "npm" / "bin" / "agent", own / "bin" / "agent")
    found = find("agent", machine(home, path.parent))
    assert found.real == own / "bin" / "agent"
    assert found.version == "1.2.3"
    assert found.mounts == (own,)  # which the platform's lies in
    assert platform.is_relative_to(own)


def test_a_platform_package_beside_the_package_is_shown_and_others_are_not(home: Path):
    modules = home / "project" / "node_modules"
    own = package(modules, "agent", needs={"agent-linux": "1", "agent-mac": "1"}, program="agent")
    platform = package(modules, "agent-linux", needs={"agent": "1"})  # in a circle
    package(modules, "secret-stuff")
    link(modules / ".bin" / "agent", own / "bin" / "agent")
    found = find("agent", machine(home, folder=home / "project"))
    assert set(found.mounts) == {own, platform}


def test_a_program_of_many_packages_is_refused_with_a_way_out(home: Path):
    modules = home / "node_modules"
    many = {f"part-{number}": "1" for number in range(60)}
    for name in many:
        package(modules, name)
    own = package(modules, "agent", needs=many, program="agent")
    link(modules / ".bin" / "agent", own / "bin" / "agent")
    with pytest.raises(EnvironmentFault) as caught:
        find("agent", machine(home))
    assert "npm install -g" in caught.value.remedy


@pytest.mark.requirement("template-programs-found")
def test_a_script_of_nvm_runs_with_the_node_beside_it_and_npm_is_there(home: Path):
    prefix = home / ".nvm" / "versions" / "node" / "v20.1.2"
    beside = node(prefix)
    npm = package(prefix / "lib" / "node_modules", "npm")
    own = package(prefix / "lib" / "node_modules", "agent", program="agent.js", content=SCRIPT)
    link(prefix / "bin" / "agent", own / "bin" / "agent.js")
    found = find("agent", machine(home))
    assert found.node == beside
    assert found.search == (prefix / "bin",)
    assert set(found.mounts) == {own, prefix / "bin", npm}


def test_of_several_versions_the_newest_is_taken(home: Path):
    for number in ("v18.2.0", "v20.1.2", "v9.9.9"):
        prefix = home / ".nvm" / "versions" / "node" / number
        node(prefix, number)
        executable(prefix / "bin" / "agent", SCRIPT)
    assert "v20.1.2" in str(find("agent", machine(home)).real)


def test_a_node_that_is_too_old_is_passed_over_and_named_if_it_is_the_only_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    old = node(home / "old", "v16.20.0")
    program = executable(home / "bin" / "agent", SCRIPT)
    new = node(home / "new", "v22.0.0")
    found = find("agent", machine(home, program.parent, old.parent, new.parent))
    assert found.node == new
    assert found.mounts == (program, new)
    monkeypatch.setattr("postroom.templates.node.OLDEST", 99)
    with pytest.raises(EnvironmentFault) as caught:
        find("agent", machine(home, program.parent, old.parent))
    assert "nodejs.org" in caught.value.remedy


@pytest.mark.requirement("template-programs-found")
def test_a_native_install_is_the_file_alone(home: Path):
    real = executable(home / ".local" / "share" / "agent" / "versions" / "2.1.197")
    link(home / ".local" / "bin" / "agent", real)
    found = find("agent", machine(home))
    assert (found.real, found.mounts, found.version) == (real, (real,), "2.1.197")


def test_a_local_install_of_claude_is_its_package_and_not_the_folder_with_its_login(home: Path):
    local = home / ".claude" / "local"
    executable(local / "claude", f'#!/bin/bash\nexec "{local}/node_modules/.bin/claude" "$@"\n')
    own = package(local / "node_modules", "@anthropic-ai/claude-code", program="claude")
    link(local / "node_modules" / ".bin" / "claude", own / "bin" / "claude")
    link(home / ".local" / "bin" / "claude", local / "claude")
    assert find("claude", machine(home, home / ".local" / "bin")).mounts == (own,)


def test_shims_lead_to_the_program_that_they_stand_for(home: Path):
    shim = executable(home / ".volta" / "bin" / "volta-shim")
    link(home / ".volta" / "bin" / "agent", shim)
    image = home / ".volta" / "tools" / "image" / "packages" / "@maker" / "agent"
    own = package(image / "lib" / "node_modules", "@maker/agent", program="agent")
    link(image / "bin" / "agent", own / "bin" / "agent")
    assert find("agent", machine(home, home / ".volta" / "bin")).real == own / "bin" / "agent"

    asdf = executable(home / ".asdf" / "shims" / "other", "#!/usr/bin/env bash\nexec asdf exec\n")
    real = executable(home / ".asdf" / "installs" / "nodejs" / "20.1.2" / "bin" / "other")
    assert find("other", machine(home, asdf.parent)).real == real


def test_a_command_of_pnpm_leads_to_its_package(home: Path):
    root = home / ".local" / "share" / "pnpm"
    own = package(root / "global" / "5" / "node_modules", "agent", program="agent")
    executable(
        root / "agent",
        '#!/bin/sh\nbasedir=$(dirname "$0")\nexec "$basedir/global/5/node_modules/agent/bin/agent"   "$@"\n',
    )
    assert find("agent", machine(home)).mounts == (own,)


def test_what_npm_calls_its_prefix_is_looked_at(home: Path):
    (home / ".npmrc").write_text("registry=https://example.com\nprefix=~/tools\n")
    real = executable(home / "tools" / "bin" / "agent")
    assert find("agent", machine(home)).real == real
    other = executable(home / "other" / "bin" / "second")
    where = machine(home, npm_config_prefix=str(home / "other"))
    assert find("second", where).real == other


def test_a_program_may_be_named_by_its_path(home: Path):
    real = executable(home / "somewhere" / "agent-2")
    assert find(str(real), machine(home)).real == real


@pytest.mark.parametrize(
    "made", ["nothing", "a folder", "a circle", "no permission", "a broken link", "a shell script"]
)
def test_what_is_no_program_is_not_found_and_the_remedy_installs_it(home: Path, made: str):
    path = home / "bin" / "agent"
    path.parent.mkdir()
    match made:
        case "a folder":
            path.mkdir()
        case "a circle":
            path.symlink_to(path)
        case "no permission":
            path.write_bytes(b"\x7fELF")
        case "a broken link":
            path.symlink_to(home / "gone")
        case "a shell script":
            executable(path, "#!/bin/sh\nexec agent\n")
    with pytest.raises(NotFound) as caught:
        find("agent", machine(home, path.parent), "npm install -g agent")
    assert caught.value.remedy == "npm install -g agent"


@pytest.mark.parametrize(
    "document", ["{", "[1]", '{"name": "agent", "dependencies": {"../../..": "1", "/etc": "1"}}']
)
def test_a_hostile_package_shows_nothing_beside_itself(home: Path, document: str):
    modules = home / "node_modules"
    own = package(modules, "agent", program="agent")
    (own / "package.json").write_text(document)
    link(modules / ".bin" / "agent", own / "bin" / "agent")
    found = find("agent", machine(home))
    assert len(found.mounts) == 1
    assert found.mounts[0].is_relative_to(own)
    assert not {*found.mounts} & {*WHOLE_FOLDERS, home}
