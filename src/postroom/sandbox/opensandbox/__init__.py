"""Workers in containers of an OpenSandbox server: the wall is its egress control, read back and tried, never assumed.

The official SDK is an optional extra and takes over a second to import, so nothing here does until it is used.
"""

from __future__ import annotations

from postroom.sandbox.opensandbox.provider import OpenSandboxProvider
from postroom.sandbox.opensandbox.remote import NAME

__all__ = ["NAME", "OpenSandboxProvider"]
