"""What an installation brings is declared, bounded, pinned and small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.footprint import MEGABYTE_LIMIT, PACKAGE_LIMIT, Footprint

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "postroom"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
BUILD = [Requirement(line) for line in PYPROJECT["build-system"]["requires"]]
BASE = [Requirement(line) for line in PROJECT["dependencies"]]
LIBRARY_PROJECT = tomllib.loads((ROOT / "a2a/pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
LIBRARY = [Requirement(line) for line in LIBRARY_PROJECT["optional-dependencies"]["sdk"]]
EXTRAS = {
    extra: [Requirement(line) for line in lines]
    for extra, lines in PROJECT["optional-dependencies"].items()
}
# Extras that a developer installs; the package itself may not need them.
TOOLING = {"test", "dev"}


def imported_modules(source: str) -> Iterator[str]:
    """The top-level name of every absolute import, wherever it stands in the file."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module.partition(".")[0]


def third_party_imports() -> dict[str, str]:
    """Map each third-party module that the package imports to one file that does."""
    own = sys.stdlib_module_names | {"postroom"}
    return {
        module: path.relative_to(ROOT).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        for module in imported_modules(path.read_text(encoding="utf-8"))
        if module not in own
    }


def pins(name: str) -> dict[str, str]:
    """Map each distribution that requirements/<name>.txt pins for this platform to its version."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pinned
        if pin.marker is None or pin.marker.evaluate()
    }


@pytest.mark.requirement("install-by-hash")
def test_every_third_party_import_belongs_to_a_declared_dependency() -> None:
    runtime = [*BASE, *(item for extra in EXTRAS.keys() - TOOLING for item in EXTRAS[extra])]
    declared = {canonicalize_name(requirement.name) for requirement in runtime}
    distributions = packages_distributions()
    undeclared = {
        module: path
        for module, path in third_party_imports().items()
        if not declared & {canonicalize_name(name) for name in distributions.get(module, [module])}
    }

    assert undeclared == {}


@pytest.mark.requirement("install-by-hash")
@pytest.mark.parametrize(
    "requirement",
    [*BUILD, *BASE, *LIBRARY, *(item for items in EXTRAS.values() for item in items)],
    ids=str,
)
def test_a_dependency_has_a_lower_and_an_upper_bound(requirement: Requirement) -> None:
    operators = {specifier.operator for specifier in requirement.specifier}

    assert operators in ({"=="}, {">=", "<"})


@pytest.mark.requirement("install-by-hash")
@pytest.mark.parametrize(
    "name, wanted",
    [
        ("build", BUILD),
        ("base", BASE),
        ("a2a", LIBRARY),
        ("dev", [*BASE, *EXTRAS["test"], *EXTRAS["dev"]]),
    ],
    ids=["build", "base", "a2a", "dev"],
)
def test_the_pins_satisfy_the_declared_dependencies(name: str, wanted: list[Requirement]) -> None:
    pinned = pins(name)
    stale = [
        str(requirement)
        for requirement in wanted
        if requirement.marker is None or requirement.marker.evaluate()
        if requirement.name != LIBRARY_PROJECT["name"]  # its folder is in this repository
        if pinned.get(canonicalize_name(requirement.name), "0") not in requirement.specifier
    ]

    assert stale == []


@pytest.mark.requirement("install-by-hash")
@pytest.mark.parametrize("name", ["base", "a2a", "build"])
def test_every_environment_pins_the_versions_that_dev_tests(name: str) -> None:
    tested = pins("dev")
    other = {
        package: version
        for package, version in pins(name).items()
        if tested.get(package, version) != version
    }

    assert other == {}


@pytest.mark.requirement("package-footprint-bounded")
def test_the_pinned_base_install_stays_under_the_package_limit() -> None:
    postroom_itself = 1

    assert len(pins("base")) + postroom_itself <= PACKAGE_LIMIT


@pytest.mark.requirement("package-footprint-bounded")
@pytest.mark.parametrize(
    "packages, megabytes, accepted",
    [
        (PACKAGE_LIMIT, MEGABYTE_LIMIT, True),
        (PACKAGE_LIMIT + 1, MEGABYTE_LIMIT, False),
        (PACKAGE_LIMIT, MEGABYTE_LIMIT + 0.1, False),
    ],
)
def test_an_installation_over_either_limit_is_refused(
    packages: int, megabytes: float, accepted: bool
) -> None:
    assert Footprint(packages, megabytes).within_limits is accepted


@pytest.mark.requirement("install-by-hash")
def test_the_install_of_the_readme_is_checked_by_hashes_and_lacks_nothing() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\$ (pip install --require-hashes .*)$", readme, re.MULTILINE)
    # All of it is installed here, so no index is asked; a package that has another version or no hash fails.
    options = ("--dry-run", "--no-index", "--disable-pip-version-check", "--no-input")
    command = (sys.executable, "-m", *line.split(), *options)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout

    named = {canonicalize_name(name) for name in re.findall(r"/(\w+)\.txt", line)}
    pinned = {name for each in named for name in pins(each)}
    library = [Requirement(each) for each in LIBRARY_PROJECT["dependencies"]]
    wanted = [*BASE, *EXTRAS["tui"], *BUILD, *library]
    assert {canonicalize_name(each.name) for each in wanted} - pinned <= {"postroom-a2a"}


@pytest.mark.requirement("install-by-hash")
@pytest.mark.parametrize(
    "file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda f: f.stem
)
def test_each_pinned_package_has_its_hashes(file: Path) -> None:
    lines = [each for each in file.read_text(encoding="utf-8").splitlines() if each.strip()]
    pinned = [at for at, each in enumerate(lines) if each[0].isalnum()]
    assert pinned
    for at in pinned:
        assert "==" in lines[at], lines[at]
        assert "--hash=sha256:" in lines[at + 1], lines[at]
