"""What a release has to agree on and consists of, and that both distributions install without each other's files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from postroom.build import COMMIT_FILE, of_checkout
from tests.manifest.test_dependencies import ROOT, imported_modules
from tools import release
from tools.release import NotReady, check, tag_version, versions

LIBRARY_FOLDER = ROOT / "a2a"
LIBRARY = LIBRARY_FOLDER / "src" / "postroom_a2a"
LIBRARY_PROJECT = tomllib.loads((LIBRARY_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

NAMES = {"postroom", "postroom-a2a"}

# Which module of a declared dependency is imported.
MODULES = {
    "a2a": "a2a-sdk",
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_reflection": "grpcio-reflection",
    "nats": "nats-py",
    "orjson": "orjson",
    "surrealdb": "surrealdb",
    "websockets": "websockets",
}


@pytest.mark.requirement("release-versions-agree")
def test_the_library_imports_nothing_of_postroom_and_nothing_that_it_does_not_declare() -> None:
    project = LIBRARY_PROJECT["project"]
    extras = project["optional-dependencies"]
    # Not `fast`: a program imports its event loop itself.
    named = extras.keys() - {"fast", "test"}
    lists = [project["dependencies"], *(extras[name] for name in named)]
    declared = {Requirement(line).name for lines in lists for line in lines}
    imported = {
        module
        for path in LIBRARY.rglob("*.py")
        for module in imported_modules(path.read_text(encoding="utf-8"))
        if module not in sys.stdlib_module_names | {"postroom_a2a"}
    }

    assert {MODULES[module] for module in imported} == declared


@pytest.mark.requirement("release-versions-agree")
def test_the_tests_of_the_library_import_nothing_of_postroom_and_of_its_tests() -> None:
    imported = {
        module
        for path in (LIBRARY_FOLDER / "tests").rglob("*.py")
        for module in imported_modules(path.read_text(encoding="utf-8"))
    }

    assert not imported & {"postroom", "tests", "tools"}


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
    for changelog in ("CHANGELOG.md", "a2a/CHANGELOG.md"):
        assert stated.pop(changelog)  # unreleased most of the time

    assert len(set(stated.values())) == 1


def test_without_a_tag_there_is_no_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")

    assert release.main([]) == 1
    assert capsys.readouterr().out.startswith("no release: ")


@dataclass(frozen=True)
class Release:
    """What `tools.release` made of a copy of this repository, and what it printed."""

    folder: Path
    printed: str
    version: str = PROJECT["project"]["version"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    copy = tmp_path_factory.mktemp("release")
    for name in ("src", "tools", "a2a"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        ".gitignore",
        "hatch_build.py",
    ):
        shutil.copy(ROOT / name, copy)
    heading = f"## [{Release.version}]"
    for log in (copy / "CHANGELOG.md", copy / "a2a" / "CHANGELOG.md"):
        text = re.sub(r"^## \[.*", heading, log.read_text("utf-8"), flags=re.MULTILINE)
        log.write_text(text, encoding="utf-8")
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "Begin")):
        subprocess.run([*git, *command], cwd=copy, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-m", "tools.release", f"v{Release.version}"],
        check=False,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Release(copy / "dist", done.stdout)


@pytest.mark.requirement("release-versions-agree")
def test_a_release_builds_both_distributions(made: Release) -> None:
    files = {path.name: path for path in made.folder.iterdir()}
    assert all(name in made.printed for name in files)
    wheel = zipfile.ZipFile(files[f"postroom_a2a-{made.version}-py3-none-any.whl"]).namelist()
    assert "postroom_a2a/__init__.py" in wheel
    assert "postroom_a2a/py.typed" in wheel
    assert not any(name.startswith("postroom/") for name in wheel)
    assert f"postroom-{made.version}-py3-none-any.whl" in files
    with tarfile.open(files[f"postroom_a2a-{made.version}.tar.gz"]) as sdist:
        assert f"postroom_a2a-{made.version}/src/postroom_a2a/__init__.py" in sdist.getnames()
    with tarfile.open(files[f"postroom-{made.version}.tar.gz"]) as sdist:
        written = sdist.extractfile(f"postroom-{made.version}/src/postroom/{COMMIT_FILE}")
        assert written is not None
        assert written.read().decode().strip() == of_checkout(made.folder.parent)


@pytest.mark.requirement("cli-status-attention")
def test_what_is_installed_from_a_release_names_the_commit(
    environment: Environment, made: Release
) -> None:
    environment.install("--no-deps", "--find-links", str(made.folder), "postroom", "postroom-a2a")
    said = environment.run("from postroom.build import version; print(version())")
    commit = of_checkout(made.folder.parent)
    assert commit
    assert said == f"{made.version} ({commit[:10]})"


# ── installations, without an index for our own names ───────────────────────────────────────────────


class Environment:
    """A new environment that has what we depend on, and neither of our own distributions."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        (self.packages,) = folder.glob("lib/python3*/site-packages")
        self.python = str(folder / "bin" / "python")
        others = folder / "others"
        others.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(("postroom", "_postroom")) and path.suffix != ".pth":
                (others / path.name).symlink_to(path)
        (self.packages / "others.pth").write_text(f"{others}\n")

    def pip(self, *arguments: str) -> None:
        """Run pip, which has no index to ask."""
        command = (sys.executable, "-m", "pip", "--python", self.python)
        options = ("--disable-pip-version-check", "--quiet", "--no-input")
        done = subprocess.run(
            [*command, *options, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *arguments: str) -> None:
        self.pip("install", "--no-index", "--no-compile", *arguments)

    def ours(self) -> dict[str, Distribution]:
        found = {each.name: each for each in distributions(path=[str(self.packages)])}
        return {name: found[name] for name in NAMES & found.keys()}

    def run(self, program: str) -> str:
        command = [self.python, "-I", "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


ALONE = "import postroom_a2a.nats, postroom_a2a; print(postroom_a2a.connect.__name__)"
WHOLE = "from postroom.cli import main; from postroom import __version__; print(__version__)"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


def files(distribution: Distribution) -> set[Path]:
    return {Path(str(distribution.locate_file(path))) for path in distribution.files or ()}


@pytest.mark.requirement("release-versions-agree")
def test_a_wheel_brings_the_other_and_takes_no_file_of_it_when_it_goes(
    environment: Environment, made: Release
) -> None:
    environment.install("--find-links", str(made.folder), "postroom")
    ours = environment.ours()
    assert environment.run(WHOLE) == ours["postroom"].version == ours["postroom-a2a"].version
    assert f"postroom-a2a=={made.version}" in (ours["postroom"].requires or ())
    assert not files(ours["postroom"]) & files(ours["postroom-a2a"])

    environment.pip("uninstall", "--yes", "postroom")

    assert environment.ours().keys() == {"postroom-a2a"}
    assert all(path.exists() for path in files(ours["postroom-a2a"]))
    assert environment.run(ALONE) == "connect"


SOME = ("tests/library/http", "tests/library/nats/test_mailbox.py", "tests/library/nats/test_kv.py")
"""Tests of the library that take seconds."""

ALL = ("-n", "2", "--dist", "loadfile", "--reruns", "1")


@pytest.mark.requirement("release-versions-agree")
@pytest.mark.parametrize(
    "which",
    [
        pytest.param(SOME, marks=pytest.mark.timeout(120)),
        pytest.param(ALL, marks=(pytest.mark.slow, pytest.mark.timeout(600))),
    ],
    ids=["some", "all"],
)
def test_the_tests_of_the_library_run_where_postroom_is_not(
    environment: Environment, which: tuple[str, ...]
) -> None:
    environment.install("--no-build-isolation", "--no-deps", "--editable", "./a2a")
    assert environment.run("import importlib.util as i; print(i.find_spec('postroom'))") == "None"
    scripts = (sysconfig.get_path("scripts"), os.environ["PATH"])  # where nats-server is
    done = subprocess.run(
        [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *which],
        check=False,
        cwd=LIBRARY_FOLDER,
        env={**os.environ, "PATH": os.pathsep.join(scripts)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("how", [(), ("--no-deps",)])
def test_both_are_installed_from_their_folders(
    environment: Environment, how: tuple[str, ...]
) -> None:
    environment.install("--no-build-isolation", *how, "./a2a", ".")

    assert environment.ours().keys() == NAMES
    assert environment.run(WHOLE) == PROJECT["project"]["version"]
    assert environment.run(ALONE) == "connect"
