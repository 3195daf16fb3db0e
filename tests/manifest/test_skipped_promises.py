"""In CI a promise that was not checked counts as broken; on a laptop it is only skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

MARKED = 'import pytest\n@pytest.mark.requirement("a-b")\n'
SKIPPED = "@pytest.mark.skip\ndef test_it(): ...\n"
EXPECTED_FAILURE = "@pytest.mark.xfail\ndef test_it(): assert False\n"
SKIPPED_MODULE = 'import pytest\npytest.skip("no reason", allow_module_level=True)\n'


def run(
    folder: Path, module: str, *, ci: bool, workers: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run pytest over one module with this project's conftest, as CI or as a laptop."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_module.py").write_text(module, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    outer = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    if ci:
        environment["CI"] = "true"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.requirement("manifest-promises-tested")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_skipped_promise_fails_in_ci(tmp_path: Path, workers: int) -> None:
    result = run(tmp_path, MARKED + SKIPPED, ci=True, workers=workers)

    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "a promise was not checked: test_module.py::test_it" in result.stdout
    assert "1 skipped" in result.stdout.splitlines()[-1]


@pytest.mark.requirement("manifest-promises-tested")
def test_a_module_skipped_whole_fails_in_ci(tmp_path: Path) -> None:
    result = run(tmp_path, SKIPPED_MODULE, ci=True, workers=1)

    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "a promise was not checked: test_module.py" in result.stdout


def test_a_skipped_promise_is_allowed_on_a_laptop(tmp_path: Path) -> None:
    assert run(tmp_path, MARKED + SKIPPED, ci=False).returncode == pytest.ExitCode.OK


@pytest.mark.parametrize(
    "module",
    ["import pytest\n" + SKIPPED, MARKED + EXPECTED_FAILURE],
    ids=["not a promise", "expected failure"],
)
def test_other_skips_are_allowed_in_ci(tmp_path: Path, module: str) -> None:
    assert run(tmp_path, module, ci=True).returncode == pytest.ExitCode.OK
