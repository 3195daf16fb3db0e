"""Measure what `pip install postroom` brings: packages and megabytes of the base install, against limits.

It builds the wheel, installs it with requirements/base.txt into a throw-away environment that has nothing
else (not even pip), starts the installed command once, and counts. So it also proves that the base install
is enough for the command line. Then the same for `postroom-a2a`, the library alone: the packages of its install,
and a program that uses every public name. Run it with the project's own environment (`make footprint`).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from tools.release import build

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_LIMIT = 32
MEGABYTE_LIMIT = 110
# The A2A SDK needs four packages more on Python before 3.13.
STANDALONE_LIMIT = 30 if sys.version_info >= (3, 13) else 34
_BYTES_PER_MEGABYTE = 1_000_000
# The unit of st_blocks, whatever the file system's own block size is (POSIX).
_BYTES_PER_BLOCK = 512


_PROGRAM = """
import sys, postroom_a2a
assert not {"a2a", "google"} & set(sys.modules), "importing the library loads the SDK"
for name in postroom_a2a.__all__:
    getattr(postroom_a2a, name)
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


def install(environment: Path, scratch: Path) -> None:
    """Fill a new environment with the pinned base requirements and a wheel of this checkout."""
    venv.create(environment, with_pip=False)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    projects = (str(ROOT / "a2a"), str(ROOT))
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={scratch}", *projects)
    base = str(ROOT / "requirements" / "base.txt")
    _run(*pip, "--python", python, "install", "--require-hashes", "-r", base)
    wheels = [str(wheel) for wheel in scratch.glob("*.whl")]
    _run(*pip, "--python", python, "install", "--no-deps", *wheels)


def measure_standalone(scratch: Path) -> int:
    """Count the packages of the library's own install, in which a program can use all of its public names."""
    environment = scratch / "library"
    venv.create(environment, with_pip=False)
    python = str(environment / "bin" / "python")
    build(ROOT / "a2a", scratch / "dist", "wheel")
    # Compiling what is thrown away would take longer than all the rest.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    pip += ["--python", python, "install", "--no-compile"]
    _run(*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "a2a.txt"))
    _run(*pip, "--no-deps", *(str(wheel) for wheel in (scratch / "dist").glob("*.whl")))
    _run(python, "-I", "-c", _PROGRAM)
    return measure(environment).packages


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)


def main() -> int:
    """Print the footprint; exit 1 over a limit."""
    with tempfile.TemporaryDirectory(prefix="postroom-footprint-") as folder:
        scratch = Path(folder)
        environment = scratch / "environment"
        install(environment, scratch)
        _run(str(environment / "bin" / "postroom"), "--help")
        footprint = measure(environment)
        packages = measure_standalone(scratch)
    print(footprint)
    print(f"footprint of postroom-a2a: {packages} packages (limit {STANDALONE_LIMIT})")
    return 0 if footprint.within_limits and packages <= STANDALONE_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
