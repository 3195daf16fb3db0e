"""What `up` demands of its settings before it begins anything, and `config set` before it keeps one."""

from __future__ import annotations

from postroom.bus.places import parse_servers
from postroom.bus.server_binary import find_binary
from postroom.control.a2a.place import check as check_grpc
from postroom.control.endpoints import Endpoints, plan
from postroom.errors import EnvironmentFault, InvalidInput
from postroom.http.outbound import OutboundPolicy, client_context
from postroom.settings import Settings
from postroom.store.place import shown_place


def check_settings(settings: Settings) -> Endpoints:
    """The addresses that `settings` ask for, once all that can be judged without opening anything is good.

    Raises:
        InvalidInput: a setting has a value that `up` could not work with; the message names it.
        EnvironmentFault: an extra is missing that it needs, or the nats-server that it names.
    """
    check_grpc(settings)
    endpoints = plan(settings)
    parse_servers(settings.nats_urls, always_tls=settings.tls == "always")
    try:
        OutboundPolicy.parse(settings.egress_private)
    except InvalidInput as error:
        raise InvalidInput(f"egress.allow_private: {error.message}", remedy=error.remedy) from error
    if settings.egress_ca is not None:
        try:
            client_context(settings.egress_ca)
        except EnvironmentFault as error:
            raise InvalidInput(f"egress.ca: {error.message}", remedy=error.remedy) from error
    if settings.nats_server is not None:
        find_binary(settings.nats_server)
    shown_place(settings)
    return endpoints
