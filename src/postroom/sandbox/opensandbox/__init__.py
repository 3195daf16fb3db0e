"""Workers in containers of an OpenSandbox server: the wall is its egress control, which is read back and tried.

The official SDK is an optional extra and takes over a second to import, so only its use imports it.
"""

from __future__ import annotations

from postroom.sandbox.opensandbox.provider import OpenSandboxProvider
from postroom.sandbox.opensandbox.remote import NAME

__all__ = ["NAME", "OpenSandboxProvider"]
