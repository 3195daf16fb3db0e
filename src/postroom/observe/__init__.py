"""Logging set-up: this module decides format and level; every other module only calls `get_logger`.

Plain lines with a level, so that grep works. No secret is ever a field (docs/architecture.md, Identity).
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path

MAX_LOG_BYTES = 10 * 1024 * 1024
KEPT_LOGS = 3


def get_logger(name: str) -> logging.Logger:
    """The logger of a module, below `postroom`."""
    return logging.getLogger(name)


def to_stderr(level: str = "warning") -> None:
    """Log to stderr, for processes whose stderr is kept."""
    handler = logging.StreamHandler(sys.stderr)
    _install(handler, level)


def to_file(path: Path, level: str = "info") -> None:
    """Log to `path`, rotated at 10 MiB, three old ones kept."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = _LogFile(path, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="utf-8")
    _install(handler, level)


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log file that loses lines while its disk is full, and does nothing else."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is logging's)
        """Ignore a line that could not be written: the default writes a traceback for each to another file."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def _install(handler: logging.Handler, level: str) -> None:
    handler.setFormatter(
        logging.Formatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S%z"
        )
    )
    for name in ("postroom", "postroom_a2a"):
        root = logging.getLogger(name)
        root.handlers[:] = [handler]
        root.setLevel(level.upper())
        root.propagate = False
