"""Agent cards of A2A 0.3 in JSON, from and to the AgentCard of 1.0.

Both versions have similar JSON, so this module rearranges a card as JSON, and protobuf's own reader checks the types.
A card of 0.3 leaves out tenants, device code flows, PKCE, and interfaces of other versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from a2a import types
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation.values import (
    UNREADABLE,
    MalformedObject,
    Record,
    listed,
    mapping,
    reason,
    record,
    text,
    texts,
)

DEFAULT_TRANSPORT = "JSONRPC"
"""Taken for a card that names no other."""

DEFAULT_VERSION = "0.3.0"
"""Taken for a card that names no other."""

_VERSION = "0.3"

_PLAIN = ("name", "description", "version", "documentationUrl", "iconUrl", "provider")
_FLOWS = {
    "authorizationCode": ("authorizationUrl", "tokenUrl"),
    "clientCredentials": ("tokenUrl",),
    "implicit": ("authorizationUrl",),
    "password": ("tokenUrl",),
}
_REQUIRED: dict[str, Record] = {
    "apiKeySecurityScheme": {"name": ""},
    "httpAuthSecurityScheme": {"scheme": ""},
    "openIdConnectSecurityScheme": {"openIdConnectUrl": ""},
}
"""Members that 0.3 has also where they are empty."""


_SCHEMES = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
_TYPES = {name: kind for kind, name in _SCHEMES.items()}


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────


def write_card(card: types.AgentCard) -> Record:
    """The card as 0.3 reads it.

    Raises:
        RpcError: VERSION_NOT_SUPPORTED, if no interface of the card is of 0.3.
    """
    said = MessageToDict(card)
    interfaces = [each for each in said.get("supportedInterfaces", ()) if _is_legacy(each)]
    if not interfaces:
        raise RpcError(Code.VERSION_NOT_SUPPORTED, "the card has no interface of A2A 0.3")
    first, *others = interfaces
    capabilities = said.get("capabilities", {})
    extended = capabilities.pop("extendedAgentCard", None)
    for extension in capabilities.get("extensions", ()):
        extension.update({"uri": "", "required": False} | extension)
    written = {
        "name": card.name,
        "description": card.description,
        "protocolVersion": first.get("protocolVersion") or _VERSION,
        "version": card.version,
        "url": first.get("url", ""),
        "preferredTransport": first.get("protocolBinding", ""),
        "additionalInterfaces": [_interface(each) for each in others] or None,
        "provider": _provider(said.get("provider")),
        "iconUrl": said.get("iconUrl"),
        "documentationUrl": said.get("documentationUrl"),
        "capabilities": capabilities,
        "securitySchemes": _schemes(said.get("securitySchemes", {})) or None,
        "security": _requirements(said),
        "defaultInputModes": said.get("defaultInputModes", []),
        "defaultOutputModes": said.get("defaultOutputModes", []),
        "skills": [_skill(each) for each in said.get("skills", ())],
        "supportsAuthenticatedExtendedCard": extended,
        "signatures": _signatures(said),
    }
    return {name: value for name, value in written.items() if value is not None}


def _is_legacy(interface: Record) -> bool:
    version = interface.get("protocolVersion", "")
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return not version or (major == "0" and minor.isdecimal() and int(minor) >= 3)


def _interface(interface: Record) -> Record:
    return {
        "url": interface.get("url", ""),
        "transport": interface.get("protocolBinding", ""),
    }


def _provider(provider: Record | None) -> Record | None:
    return None if provider is None else {"organization": "", "url": ""} | provider


def _schemes(schemes: Record) -> Record:
    return {name: _scheme(scheme) for name, scheme in schemes.items() if scheme}


def _scheme(scheme: Record) -> Record:
    ((name, said),) = scheme.items()
    written = {"type": _TYPES[name], **_REQUIRED.get(name, {}), **said}
    if name == "apiKeySecurityScheme":
        written["in"] = written.pop("location", "")
    elif name == "oauth2SecurityScheme":
        flows = said.get("flows", {})
        written["flows"] = {
            each: {**dict.fromkeys(urls, ""), "scopes": {}, **_without(flows[each], "pkceRequired")}
            for each, urls in _FLOWS.items()
            if each in flows
        }
    return written


def _without(said: Record, member: str) -> Record:
    return {name: said[name] for name in said if name != member}


def _requirements(holder: Record) -> list[Record] | None:
    found = [
        {name: scopes.get("list", []) for name, scopes in said.get("schemes", {}).items()}
        for said in holder.pop("securityRequirements", ())
    ]
    return found or None


def _skill(skill: Record) -> Record:
    security = _requirements(skill)
    written = {"id": "", "name": "", "description": "", "tags": []} | skill
    return written if security is None else written | {"security": security}


def _signatures(holder: Record) -> list[Record] | None:
    found = [{"protected": "", "signature": ""} | each for each in holder.get("signatures", ())]
    return found or None


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


def read_card(value: Any) -> types.AgentCard:
    """The card in `value`; a security scheme of an unknown type is left out.

    Raises:
        MalformedObject: `value` is not a card.
    """
    said = record(value, "it")
    capabilities = {**record(said.get("capabilities") or {}, "capabilities")}
    capabilities["extensions"] = listed(capabilities, "extensions", _without_empty("params"))
    extended = said.get("supportsAuthenticatedExtendedCard")
    if extended is not None:
        capabilities["extendedAgentCard"] = extended
    first = {
        "url": text(said, "url"),
        "protocolBinding": text(said, "preferredTransport") or DEFAULT_TRANSPORT,
        "protocolVersion": text(said, "protocolVersion") or DEFAULT_VERSION,
    }
    schemes = mapping(said, "securitySchemes", _read_scheme)
    card = {name: said[name] for name in _PLAIN if said.get(name)} | {
        "supportedInterfaces": [first, *listed(said, "additionalInterfaces", _read_interface)],
        "capabilities": capabilities,
        "securitySchemes": {name: scheme for name, scheme in schemes.items() if scheme},
        "securityRequirements": listed(said, "security", _read_requirement),
        "defaultInputModes": texts(said, "defaultInputModes"),
        "defaultOutputModes": texts(said, "defaultOutputModes"),
        "skills": listed(said, "skills", _read_skill),
        "signatures": listed(said, "signatures", _without_empty("header")),
    }
    try:
        return ParseDict(card, types.AgentCard(), ignore_unknown_fields=True)
    except UNREADABLE as error:
        raise MalformedObject("the card", f"cannot be taken: {reason(error)}") from error


def _without_empty(name: str) -> Callable[[Any], Record]:
    """A reader of an object whose member `name` counts as absent if it is empty."""

    def read(value: Any) -> Record:
        said = record(value)
        return said if said.get(name) else _without(said, name)

    return read


def _read_interface(value: Any) -> Record:
    said = record(value)
    return {
        "url": text(said, "url"),
        "protocolBinding": text(said, "transport"),
        "protocolVersion": _VERSION,
    }


def _read_scheme(value: Any) -> Record:
    said = record(value)
    name = _SCHEMES.get(text(said, "type"))
    if name is None:
        return {}
    scheme = {key: each for key, each in said.items() if key not in {"type", "in"}}
    if name == "apiKeySecurityScheme":
        scheme["location"] = text(said, "in")
    elif name == "oauth2SecurityScheme":
        flows = record(said.get("flows") or {}, "flows")
        # One flow is all that 1.0 has room for: the last of them that it knows, as protobuf takes them.
        known = [flow for flow in _FLOWS if flows.get(flow) is not None]
        scheme["flows"] = {flow: flows[flow] for flow in known[-1:]}
    return {name: scheme}


def _read_requirement(value: Any) -> Record:
    said = record(value)
    return {"schemes": {name: {"list": texts(said, name)} for name in said}}


def _read_skill(value: Any) -> Record:
    said = record(value)
    return {**said, "securityRequirements": listed(said, "security", _read_requirement)}
