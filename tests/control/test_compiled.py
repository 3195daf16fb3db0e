"""Post rooms and sidecars start from compiled Python, however Postroom was installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from postroom.workers.compiled import FORBIDDING, compile_modules, is_compiled

pytestmark = pytest.mark.anyio


async def test_what_a_sidecar_imports_is_compiled_once_and_for_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.setenv(FORBIDDING, "1")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert not is_compiled()

    before = os.umask(0o077)
    try:
        await compile_modules(0o022)
    finally:
        os.umask(before)

    assert is_compiled()
    (main,) = tmp_path.rglob("postroom/sidecar/main.cpython*")
    assert main.parent.stat().st_mode & 0o777 == 0o755
    written = main.stat().st_mtime_ns
    await compile_modules()
    assert main.stat().st_mtime_ns == written
