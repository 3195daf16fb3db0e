"""Sidecars start from compiled Python, however Postroom was installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from postroom.control.compiled import FORBIDDING, compile_sidecar, is_compiled

pytestmark = pytest.mark.anyio


async def test_what_a_sidecar_imports_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.setenv(FORBIDDING, "1")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert not is_compiled()

    await compile_sidecar()

    assert is_compiled()
    (written,) = {path.stat().st_mtime_ns for path in tmp_path.rglob("main.cpython*")}
    await compile_sidecar()
    assert {path.stat().st_mtime_ns for path in tmp_path.rglob("main.cpython*")} == {written}
