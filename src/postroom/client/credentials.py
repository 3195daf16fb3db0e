"""The routes of credentials as methods (docs/api.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroom.client.calls import Calls, given, name_of
from postroom.client.records import Credential


class CredentialCalls(Calls):
    """Credentials that the gateway adds to workers' requests."""

    def add_credential(
        self,
        name: str,
        host: str,
        secret: str,
        *,
        path: str = "",
        header: str = "",
        workers: Sequence[str] = (),
        replace: bool = False,
    ) -> Credential:
        """Keep a credential; it counts from the next request on.

        Args:
            name: by which templates name it.
            host: `host`, `host:port` or with a scheme before it.
            secret: goes to the control plane, which gives it to nobody but that host.
            path: prefix of the paths that it is for.
            header: `Name: value` with `{secret}` in the value; `Authorization: Bearer {secret}` if not given.
            workers: nicks or uids that alone may use it.
            replace: take the place of one of that name.
        """
        body: dict[str, Any] = {"name": name, "host": host, "secret": secret}
        body |= {"workers": list(workers), "replace": replace}
        return self._post("/v1/credentials", body | given(path=path, header=header))

    def credentials(self) -> list[Credential]:
        """All of them, without their secrets."""
        return self._get("/v1/credentials")["credentials"]

    def remove_credential(self, name: str) -> None:
        """Forget one; the next request goes without it."""
        self.transport.call("DELETE", f"/v1/credentials/{name_of(name)}")
