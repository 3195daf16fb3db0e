"""The distribution of the library alone, and what a release has to agree on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.manifest.test_dependencies import ROOT, imported_modules
from tools import release
from tools.release import NotReady, check, tag_version, versions

LIBRARY = ROOT / "a2a" / "src" / "postroom_a2a"
LIBRARY_PROJECT = tomllib.loads((ROOT / "a2a/pyproject.toml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Which module of a declared dependency is imported.
MODULES = {"a2a": "a2a-sdk", "google": "protobuf", "nats": "nats-py"}


@pytest.mark.requirement("install-library-alone")
def test_the_library_imports_nothing_of_postroom_and_nothing_that_it_does_not_declare() -> None:
    declared = {
        Requirement(line).name
        for lines in LIBRARY_PROJECT["project"]["optional-dependencies"].values()
        for line in lines
    }
    imported = {
        module
        for path in LIBRARY.rglob("*.py")
        for module in imported_modules(path.read_text(encoding="utf-8"))
        if module not in sys.stdlib_module_names | {"postroom_a2a"}
    }

    assert {MODULES[module] for module in imported} == declared


@pytest.mark.parametrize("ref", ["v1.2.3", "refs/tags/v1.2.3"])
def test_a_tag_names_a_version(ref: str) -> None:
    assert tag_version(ref) == "1.2.3"


@pytest.mark.parametrize("ref", ["", "1.2.3", "v1.2", "refs/heads/main", "v1.2.3 ", "v1.2.3-x"])
def test_what_is_no_tag_of_a_release_is_refused(ref: str) -> None:
    with pytest.raises(NotReady):
        tag_version(ref)


@pytest.mark.requirement("release-versions-agree")
def test_a_release_needs_one_version_everywhere_and_a_clean_tree() -> None:
    stated = dict.fromkeys(versions(ROOT), "1.2.3")
    check("1.2.3", stated, "")
    for place in stated:
        with pytest.raises(NotReady, match=re.escape(place)):
            check("1.2.3", stated | {place: "1.2.4"}, "")
    with pytest.raises(NotReady, match="uncommitted"):
        check("1.2.3", stated, " M README.md\n")


def test_the_project_and_the_library_alone_have_one_version() -> None:
    stated = versions(ROOT)
    stated.pop("CHANGELOG.md")  # unreleased most of the time

    assert len(set(stated.values())) == 1


def test_without_a_tag_there_is_no_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")

    assert release.main([]) == 1
    assert capsys.readouterr().out.startswith("no release: ")


@pytest.mark.requirement("release-versions-agree")
def test_a_release_builds_both_distributions(tmp_path: Path) -> None:
    for name in ("src", "tools", "a2a"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path)
    version = PROJECT["project"]["version"]
    log = tmp_path / "CHANGELOG.md"
    text = re.sub(
        r"^## \[.*", f"## [{version}]", log.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    log.write_text(text, encoding="utf-8")
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "Begin")):
        subprocess.run([*git, *command], cwd=tmp_path, check=True, timeout=60)

    command = (sys.executable, "-m", "tools.release", f"v{version}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    made = subprocess.run(
        command,
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert made.returncode == 0, made.stdout + made.stderr
    files = {path.name: path for path in (tmp_path / "dist").iterdir()}
    assert all(name in made.stdout for name in files)
    wheel = zipfile.ZipFile(files[f"postroom_a2a-{version}-py3-none-any.whl"]).namelist()
    assert "postroom_a2a/__init__.py" in wheel
    assert "postroom_a2a/py.typed" in wheel
    assert not any(name.startswith("postroom/") for name in wheel)
    assert f"postroom-{version}-py3-none-any.whl" in files
    with tarfile.open(files[f"postroom_a2a-{version}.tar.gz"]) as sdist:
        assert f"postroom_a2a-{version}/src/postroom_a2a/__init__.py" in sdist.getnames()
    assert f"postroom-{version}.tar.gz" in files
