"""What a webhook gets, checked by programs in other languages: the verifier of the page in Node, and openssl."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from pathlib import Path

import pytest

from postroom.protocol.webhooks import HookEvent
from tests.agents.programs import NODE
from tests.docs.pages import blocks
from tests.push.receivers import Got, receiver
from tests.push.test_hooks import Office, at, on_sqlite

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("webhooks-tell")]

__all__ = ["on_sqlite"]

ASKING = """
import { readFileSync } from "node:fs";
import { verified } from "./verifier.mjs";
const asked = JSON.parse(readFileSync(0));
console.log(JSON.stringify(asked.map(({ headers, body, secret }) => verified(headers, body, secret))));
"""


async def told(office: Office) -> tuple[Got, str, str]:
    """A request, and the two secrets that sign it: the present one and the former."""
    async with receiver() as hook, office.tasks.pushing(*at(hook)):
        made = await office.add(hook.url, HookEvent.MESSAGE)
        turned = await office.service.rotate(made.row.id, office.me(office.tasks.anna))
        await office.mail("größer, \U0001f4ee")
        (got,) = await hook.until(1)
        return got, turned.secret, made.secret


async def test_the_verifier_of_the_page_takes_what_is_signed_and_nothing_else(
    on_sqlite: Office, tmp_path: Path
):
    got, present, former = await told(on_sqlite)
    (program,) = [each for each in blocks("docs/post-office.md") if each.name == "verifier.mjs"]
    (tmp_path / "verifier.mjs").write_text(program.text)
    (tmp_path / "ask.mjs").write_text(ASKING)
    whole = {"headers": got.headers, "body": got.body.decode(), "secret": present}
    old = {"x-a2a-timestamp": "2026-05-03T12:00:00.000Z"}
    asked = [
        whole,
        {**whole, "secret": former},
        {**whole, "secret": "whsec_" + base64.b64encode(bytes(32)).decode()},
        {**whole, "body": whole["body"] + " "},
        {**whole, "headers": got.headers | old},
    ]
    done = await asyncio.to_thread(
        subprocess.run,
        [NODE, "ask.mjs"],
        cwd=tmp_path,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(done.stdout) == [True, True, False, False, False]


async def test_openssl_makes_the_same_signature_of_standard_webhooks(on_sqlite: Office):
    got, *secrets = await told(on_sqlite)
    assert abs(time.time() - int(got.headers["webhook-timestamp"])) < 60
    signed = f"{got.id}.{got.headers['webhook-timestamp']}.".encode() + got.body
    given = got.headers["webhook-signature"].split(" ")
    for secret, expected in zip(secrets, given, strict=False):
        key = base64.b64decode(secret.removeprefix("whsec_")).hex()
        command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key}"]
        process = await asyncio.create_subprocess_exec(
            *command, "-binary", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        made, _ = await process.communicate(signed)
        assert expected == "v1," + base64.b64encode(made).decode()
