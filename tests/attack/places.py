"""Places that a worker must not reach by the way out, and ways to ask for them."""

from __future__ import annotations

from collections.abc import Iterator

ADDRESSES = (
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "172.16.0.1"),
    *("172.31.255.255", "192.168.0.1", "192.168.255.255", "169.254.169.254", "169.254.0.1"),
    *("100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.0.1", "192.0.2.1", "198.18.0.1"),
    *(
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
    ),
    *("168.63.129.16", "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
    *("::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1"),
    *("2001:db8::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
    *(
        "fc00::1",
        "fd00:ec2::254",
        "fd12:3456::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "5f00::1",
    ),
)
"""Of this machine, of networks that are not the internet, and of clouds' metadata services, in every form."""

NAME = "n{}.evil.test"
"""Name of the host that is at the address of that number: a rule may cover it."""

ODD = (
    *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "127.0.0.1%00", "localhost"),
    *(
        "localhost.",
        "LOCALHOST",
        "a.localhost",
        "[::1",
        "::1]",
        "[::ffff:7f00:1]",
        "[fe80::1%25lo]",
    ),
    *(
        "metadata.google.internal",
        "user@n0.evil.test",
        "n0.evil.test@127.0.0.1",
        "n0.evil.test%00.x",
    ),
    *(
        "n0.evil.test:99999",
        "n0.evil.test:-1",
        "n0.evil.test:080",
        "n0.evil.test:",
        ".evil.test",
        "",
    ),
    *("evil.test", "x.evil.test.example", "evil-test", "n0.evil.test#x", "n0.evil.test\\@x", "*"),
    *(
        "xn--n0-.evil.test",
        "n0..evil.test",
        "-n0.evil.test",
        "n_0.evil.test:x",
        "1.2.3.4.5",
        "8.8.8.8",
    ),
)
"""Other spellings of such places, and hosts that no rule covers."""

SCHEMES = (
    "ftp",
    "file",
    "gopher",
    "ws",
    "wss",
    "dict",
    "ldap",
    "unix",
    "data",
    "HTTPX",
    "javascript",
)


def _literal(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def requests(port: int) -> Iterator[tuple[str, str]]:
    """(method, target) that the gateway must refuse; on `port` of this machine somebody listens."""
    names = [NAME.format(number) for number in range(len(ADDRESSES))]
    for host in (*map(_literal, ADDRESSES), *names, *ODD):
        for place in (host, f"{host}:{port}"):
            for method in ("GET", "POST"):
                yield method, f"/http/{place}/latest/meta-data"
                yield method, f"http://{place}/latest/meta-data"
            yield "GET", f"/https/{place}/"
            yield "CONNECT", place
    for scheme in SCHEMES:
        yield "GET", f"{scheme}://{NAME.format(0)}:{port}/"
        yield "GET", f"/{scheme}/{NAME.format(0)}:{port}/"
    for target in (
        "/",
        "/v1/workers",
        "/livez",
        "*",
        "//",
        "/http",
        "/http/",
        "/https//x",
        "/http//127.0.0.1",
    ):
        yield "GET", target
    for method in ("TRACE", "TRACK", "PRI"):
        yield method, f"/http/{NAME.format(0)}:{port}/"


# Of the control plane's API.

PATHS = (
    *(
        "/v1/workers/{v}/sdk-events",
        "/v1/workers/@bob/sdk-events",
        "/v1/workers/bob",
        "/v1/workers/",
    ),
    *("//v1/workers", "/v1//workers", "/v1/./workers", "/v1/../v1/workers", "/v1/blobs/../workers"),
    *(
        "/v1/workers/{o}/../{v}/sdk-events",
        "/v1/workers/{o}%2f..%2f{v}/sdk-events",
        "/%76%31/workers",
    ),
    *(
        "/v1/workers/{o}/../../workers",
        "/v1/blobs/%2e%2e/workers",
        "/v1/blobs/..%2fworkers",
        "/V1/workers",
    ),
    *(
        "/v1/workers;x",
        "/v1/workers%00",
        "/v1/workers%20",
        "/v1/workers?worker={v}",
        "/v1/workers#x",
    ),
    *(
        "/orgs/default/v1/workers",
        "/orgs/acme/v1/workers",
        "/orgs/",
        "/orgs",
        "/orgs/../v1/workers",
    ),
    *(
        "/orgs/default/v1/workers/{v}/sdk-events",
        "/v1/orgs",
        "/v1/openapi.json/../workers",
        "/v1/audit",
    ),
    *(
        "http://127.0.0.1/v1/workers",
        "http://postroom/v1/workers",
        "https://postroom/v1/workers",
        "*",
    ),
    *(
        "postroom:80",
        "v1/workers",
        "/v1/workers/{v}",
        "/v1/agents/{v}",
        "/v1/tasks/{t}",
        "/v1/messages",
    ),
)

CLAIMS = (
    *(
        "X-Postroom-Worker: {v}",
        "Postroom-Worker: {v}",
        "postroom.worker: {v}",
        "Forwarded: for=127.0.0.1",
    ),
    *(
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-User: {v}",
        "X-Real-IP: 127.0.0.1",
        "X-HTTP-Method-Override: PUT",
    ),
    *(
        "X-Original-URL: /v1/workers/{o}/sdk-events",
        "X-Rewrite-URL: /v1/workers/{o}/sdk-events",
        "Via: 1.1 x",
    ),
    *(
        "Origin: http://127.0.0.1:4280",
        "Cookie: token={t}",
        "Authorization: Bearer {theirs}",
        "Host: 127.0.0.1:4280",
    ),
    *(
        "Authorization: Basic eDp5",
        "Authorization: Bearer",
        "Authorization: bearer x",
        "Authorization: {mine}",
    ),
)
