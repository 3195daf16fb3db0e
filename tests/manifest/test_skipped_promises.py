"""In CI a promise that was not checked counts as broken; on a laptop it is only skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"

MODULES = {
    "test_promise": '@pytest.mark.requirement("a-b")\n@pytest.mark.skip\ndef test_it(): ...\n',
    "test_whole": 'pytest.skip("no reason", allow_module_level=True)\n',
    "test_other": "@pytest.mark.skip\ndef test_it(): ...\n",
    "test_expected": (
        '@pytest.mark.requirement("a-b")\n@pytest.mark.xfail\ndef test_it(): assert False\n'
    ),
}


def run(folder: Path, *arguments: str, ci: bool) -> subprocess.CompletedProcess[str]:
    """Run pytest over `MODULES` with this project's conftest, as CI or as a laptop."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(f"import pytest\n{text}", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    outer = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    if ci:
        environment["CI"] = "true"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def unchecked(result: subprocess.CompletedProcess[str]) -> set[str]:
    """The promises that the run says were not checked."""
    said = "a promise was not checked: "
    return {line.partition(said)[2] for line in result.stdout.splitlines() if said in line}


@pytest.mark.requirement("manifest-promises-tested")
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_skipped_promise_and_a_module_skipped_whole_fail_in_ci_and_nothing_else_does(
    tmp_path: Path, workers: str
) -> None:
    result = run(tmp_path, "-n", workers, ci=True)

    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert unchecked(result) == {"test_promise.py::test_it", "test_whole.py"}
    assert "3 skipped, 1 xfailed" in result.stdout.splitlines()[-1]


def test_other_skips_are_allowed_in_ci_and_every_one_on_a_laptop(tmp_path: Path) -> None:
    others = ("test_other.py", "test_expected.py")

    assert run(tmp_path, "-p", "no:xdist", *others, ci=True).returncode == pytest.ExitCode.OK
    assert run(tmp_path, "-p", "no:xdist", ci=False).returncode == pytest.ExitCode.OK
