"""Measure what `pip install postroom` brings: packages and megabytes of the base install, against limits.

It builds the wheels, installs them beside what requirements/base.txt pins in a throw-away environment that has
nothing else (not even pip), starts the installed command once, and counts. So it also proves that the base install
is enough for the command line. Then the same for `postroom-a2a`, the library alone: the packages of its install,
and a program that uses every public name but that of an extra. Run it with the project's own
environment (`make footprint`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from importlib.metadata import distribution, distributions
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement

from tools.release import build

ROOT = Path(__file__).resolve().parent.parent
# httptools and orjson are two packages and 2 MB; they take a third of the processor time out of each request.
# wsproto is one more, for WebSockets in both directions.
# tree-sitter and its bash grammar are two and 4 MB: who allows a line of shell has to know what it runs.
# The screen is seven: Textual, Rich, Pygments and what they need.
# The SDK of MCP is twelve and 8 MB: it reads both generations of a protocol that clients change twice a year.
PACKAGE_LIMIT = 50
MEGABYTE_LIMIT = 149
# The A2A SDK needs four packages more on Python before 3.13.
STANDALONE_LIMIT = 31 if sys.version_info >= (3, 13) else 35
_BYTES_PER_MEGABYTE = 1_000_000
# The unit of st_blocks, whatever the file system's own block size is (POSIX).
_BYTES_PER_BLOCK = 512
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

_PROGRAM = """
import sys, postroom_a2a
assert not {"a2a", "google"} & set(sys.modules), "importing the library loads the SDK"
for name in postroom_a2a.__all__:
    try:
        getattr(postroom_a2a, name)
    except ModuleNotFoundError as error:
        if (name, error.name) not in {("GrpcServer", "grpc")}:  # of an extra
            raise
"""


@dataclass(frozen=True)
class Footprint:
    """The size of an installation: number of distributions, and megabytes on disk."""

    packages: int
    megabytes: float

    @property
    def within_limits(self) -> bool:
        """Whether both numbers stay at or under the limits."""
        return self.packages <= PACKAGE_LIMIT and self.megabytes <= MEGABYTE_LIMIT

    def __str__(self) -> str:
        return (
            f"footprint: {self.packages} packages (limit {PACKAGE_LIMIT}), "
            f"{self.megabytes:.0f} MB (limit {MEGABYTE_LIMIT})"
        )


def measure(environment: Path) -> Footprint:
    """Count the distributions and the disk blocks of a virtual environment."""
    folders = [str(folder) for folder in environment.glob("lib/python3*/site-packages")]
    packages = sum(1 for _ in distributions(path=folders))
    files = (path for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_blocks for path in files) * _BYTES_PER_BLOCK
    return Footprint(packages, size / _BYTES_PER_MEGABYTE)


def install(environment: Path, requirements: str, *wheels: Path) -> None:
    """Fill a new environment with what a file of requirements pins, and with wheels of this checkout.

    `make setup` has installed the pinned packages already: their files are copied, which takes a second, not twenty.
    """
    venv.create(
        environment, with_pip=False, symlinks=True
    )  # the interpreter is no part of the install
    for source in pinned_files(ROOT / "requirements" / requirements):
        target = environment / source.relative_to(Path(sys.prefix).resolve())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    pip = [*_PIP, "--python", str(environment / "bin" / "python"), "install", "--no-deps"]
    _run(*pip, "--no-compile", *map(str, wheels))
    _run(sys.executable, "-m", "compileall", "-q", "-j", "0", str(environment / "lib"))


def pinned_files(requirements: Path) -> set[Path]:
    """The installed files of the packages that a file of requirements pins for this machine, compiled ones too."""
    found: set[Path] = set()
    for line in re.findall(
        r"^[\w.-]+==[^\\\n]+", requirements.read_text(encoding="utf-8"), re.MULTILINE
    ):
        pin = Requirement(line)
        if pin.marker is not None and not pin.marker.evaluate():
            continue
        package = distribution(pin.name)
        if not pin.specifier.contains(package.version, prereleases=True):
            raise SystemExit(
                f"{pin} is pinned and {package.version} is installed: run `make setup`"
            )
        for file in package.files or ():
            path = Path(str(file.locate())).resolve()  # `..` in it leads to bin/
            compiled = Path(cache_from_source(str(path)))
            found |= {each for each in (path, compiled) if each.is_file()}
    return found


def measure_standalone(environment: Path, wheel: Path) -> int:
    """Count the packages of the library's own install, in which a program can use all of its public names."""
    install(environment, "a2a.txt", wheel)
    _run(str(environment / "bin" / "python"), "-I", "-c", _PROGRAM)
    return measure(environment).packages


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)


def main() -> int:
    """Print the footprint; exit 1 over a limit."""
    with tempfile.TemporaryDirectory(prefix="postroom-footprint-") as folder:
        scratch = Path(folder)
        for project in (ROOT, ROOT / "a2a"):
            build(project, scratch, "wheel")
        (library,) = scratch.glob("postroom_a2a-*.whl")
        environment = scratch / "environment"
        install(environment, "base.txt", *scratch.glob("*.whl"))
        _run(str(environment / "bin" / "postroom"), "--help")
        footprint = measure(environment)
        packages = measure_standalone(scratch / "library", library)
    print(footprint)
    print(f"footprint of postroom-a2a: {packages} packages (limit {STANDALONE_LIMIT})")
    return 0 if footprint.within_limits and packages <= STANDALONE_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
