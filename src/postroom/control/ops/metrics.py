"""`/metrics`, for Prometheus and whoever reads its text."""

from __future__ import annotations

from starlette.responses import Response

from postroom.control.measuring import Measuring
from postroom.control.ops.table import Answer, Operations
from postroom.control.parts import Parts
from postroom.control.principals import for_installation
from postroom.errors import Forbidden
from postroom.observe.metrics import CONTENT_TYPE
from postroom.protocol.principal import Principal, Scope

EXAMPLE = """# HELP postroom_dead_letters Dead letters that wait.
# TYPE postroom_dead_letters gauge
postroom_dead_letters{org="default"} 0
"""

TEXT = Answer(200, str, "text/plain", text="The text format of Prometheus, 0.0.4.", example=EXAMPLE)


operations = Operations()


@operations.get("/metrics", Scope.READ, answers=(TEXT,))
async def read(parts: Parts, measuring: Measuring, me: Principal) -> Response:
    """Show the metrics of the post room, for Prometheus.

    For the operator, whose key may have the scope `read` alone, and for who may operate in the default
    organisation. Counters begin at 0 with the process; values of the database and of the log are up to 3 s old.
    """
    for_installation(me)
    if me.uid != parts.owner.uid and not me.allows(Scope.OPERATE):
        raise Forbidden(
            "metrics are of everybody's mail and tasks",
            remedy="use a key of the operator's, or one with the scope operate",
        )
    return Response(await measuring.text(), media_type=CONTENT_TYPE)
