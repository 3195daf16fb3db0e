"""Agents, their Agent Cards, and the key that signs the cards."""

from __future__ import annotations

from postroom.control.described import fails
from postroom.control.parameters import AgentRef, Words
from postroom.control.parts import Parts
from postroom.control.principals import anyone, needs
from postroom.control.routing import Routes
from postroom.errors import NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope

JWKS = "/.well-known/jwks.json"
"""Where verifiers look for public keys, below the address of an organisation."""


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes(prefix="/agents")

    @routes.get("")
    @needs(Scope.READ)
    async def agents(skill: Words = "", text: Words = "") -> answers.Agents:
        """List everybody with an address.

        With `skill` (id, name or tag) or `text` those whose Agent Card has it.
        """
        return {"agents": await parts.search.find(skill, text), "next": None}

    @routes.get("/{ref}/card")
    @needs(Scope.READ)
    @fails(NotFound)
    async def card(ref: AgentRef) -> shapes.Card:
        """Show the Agent Card of an agent.

        It is an A2A 1.0 Agent Card, signed; 404 for an agent without one.
        """
        return (await parts.search.get(ref))["card"] or {}

    return routes


def keys_router(parts: Parts) -> Routes:
    """The route of the public key: a verifier of cards has no API key."""
    routes = Routes()

    @routes.get(JWKS)
    @anyone
    async def keys() -> answers.CardKeys:
        """Show the keys that Agent Cards are signed with.

        A JWK set; no key is needed, since a verifier of cards has none.
        """
        return {"keys": [parts.trust.card_key.jwk]}

    return routes
