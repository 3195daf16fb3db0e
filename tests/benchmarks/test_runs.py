"""Each benchmark runs to its end, with few rounds, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES, main
from benchmarks.a2a.environment import FOLDER, MAIN
from benchmarks.room import post_room


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name", sorted({*NAMES} - {"a2a", "plane"})
)  # which have tests of their own
def test_a_quick_run_writes_a_result_and_removes_its_state(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "front" and not (FOLDER / MAIN / ".installed-sql").exists():
        pytest.skip("its packages are installed when it runs by hand")
    scratch, results = tmp_path / "scratch", tmp_path / "results"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    assert main([name, "--quick", "--results", str(results)]) == 0

    result = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    assert name == result["name"]
    assert result["rows"]
    assert list(scratch.iterdir()) == []


def test_a_post_room_that_does_not_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("POSTROOM_NATS_SERVER", str(tmp_path / "missing"))

    with pytest.raises(RuntimeError, match="cannot be run"), post_room():
        pass

    assert list(tmp_path.iterdir()) == []
