"""docs/binding.md as a reader takes it: its program runs as it stands, and what it names can be imported."""

from __future__ import annotations

import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import nats
import pytest
from a2a.types import AgentCard

from library.servers import open_server
from postroom_a2a import errors, open_registry

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[4] / "docs" / "binding.md").read_text(encoding="utf-8")
(FOLLOW,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ROWS = re.findall(r"^\| `([\w.]+)` \| (`\w+.*?) \|", PAGE, re.MULTILINE)


def errors_by_module() -> dict[str, list[str]]:
    """The table of what a program catches."""
    return {module: re.findall(r"`(\w+)`", names) for module, names in ROWS if "Error" in names}


@pytest.mark.requirement("docs-commands-run")
async def test_a_watch_gives_what_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    defined: dict[str, Any] = {}
    exec(compile(FOLLOW, "binding.md", "exec"), defined)
    async with open_server(tmp_path) as url, asyncio.timeout(30):
        said = ""
        async with await nats.connect(url) as connection:
            registry = await open_registry(connection)
            await registry.publish(AgentCard(name="Echo"), "echo")
            watching = asyncio.create_task(defined["follow"](connection))
            try:
                for wanted in ("echo: Echo\nthat was all, so far\n", "echo is gone\n"):
                    while wanted not in said:
                        await connection.flush()
                        said += capsys.readouterr().out
                    await registry.close()
            finally:
                watching.cancel()
                await asyncio.wait([watching])


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.parametrize("module", errors_by_module())
def test_each_error_is_imported_from_where_the_page_says(module: str):
    for name in errors_by_module()[module]:
        assert issubclass(getattr(importlib.import_module(module), name), Exception)


@pytest.mark.requirement("docs-commands-run")
def test_the_page_says_where_each_error_that_it_names_is_imported_from():
    told = {name for names in errors_by_module().values() for name in names}
    words = set(re.findall(r"`(\w+)(?:: [^`]*)?`", PAGE))
    ours = {name for name in words if hasattr(errors, name)}
    named = {name for name in words if name.endswith("Error")} | ours
    assert named - told == set()
