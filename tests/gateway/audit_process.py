"""A process that writes numbered lines to an audit log with small files until it is killed; run by test_audit_log."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from postroom.audit import AuditLog
from postroom.protocol.audit import AuditRecord


async def main(path: Path, first: int) -> None:
    log = AuditLog(path, file_bytes=400, files=100_000)
    number = first
    while True:
        log.write(AuditRecord(at="t", message=str(number)).encode())
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1
        if number % 50 == 0:
            await log.tend()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
