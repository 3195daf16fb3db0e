"""Who asks an agent, as the SDK wants to be told."""

from __future__ import annotations

from a2a.auth.user import User


class Requester(User):
    """Who asked, as the server has checked it."""

    def __init__(self, uid: str) -> None:
        self._uid = uid

    @property
    def is_authenticated(self) -> bool:
        """Always: nobody else gets this far."""
        return True

    @property
    def user_name(self) -> str:
        """Its uid."""
        return self._uid
