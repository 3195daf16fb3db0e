"""The library's connections log in with a JWT, as those of Postroom do."""

from __future__ import annotations

from pathlib import Path

import nats
import pytest

import postroom_a2a as a2a
from postroom.errors import Unauthorized
from postroom.protocol.ids import CONTROL_PLANE
from postroom_a2a.nats import Credentials
from postroom_a2a.nats.natspy import to_serve_on
from tests.natspy import options_of
from tests.rig import running_server

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_jwt_and_its_key_are_let_in(tmp_path: Path):
    async with running_server(tmp_path) as rig:
        user = rig.trust.core_credential()
        prefix = f"_I.{CONTROL_PLANE}"
        async with await a2a.connect(
            rig.url, credentials=Credentials(user.sign, jwt=lambda: user.jwt), inbox_prefix=prefix
        ) as connection:
            assert connection.is_connected
        with pytest.raises(Unauthorized):
            await a2a.connect(rig.url)


async def test_a_server_shows_the_jwt_and_signs_as_the_functions_of_nats_py_do(tmp_path: Path):
    async with running_server(tmp_path) as rig:
        credential = rig.trust.core_credential()
        prefix = f"_I.{CONTROL_PLANE}"
        client = await nats.connect(rig.url, **options_of(credential), inbox_prefix=prefix)
        async with to_serve_on(client)[0] as own:
            await own.open()
            assert own.is_connected
        await client.close()
