"""Writes the commit that a distribution is built from beside the package, for `postroom --version`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class CommitHook(BuildHookInterface):
    """Without a git checkout, or for an editable install, which reads the checkout itself, it adds nothing."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, where the commit is known."""
        sys.path.insert(0, str(ROOT / "src"))
        try:
            from postroom.build import COMMIT_FILE, of_checkout
        finally:
            sys.path.pop(0)
        commit = of_checkout(ROOT)
        if commit and version != "editable":
            self._made = tempfile.TemporaryDirectory()
            made = Path(self._made.name) / COMMIT_FILE
            made.write_text(f"{commit}\n", encoding="utf-8")
            inside = "postroom" if self.target_name == "wheel" else "src/postroom"
            build_data["force_include"][str(made)] = f"{inside}/{COMMIT_FILE}"
