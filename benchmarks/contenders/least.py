"""This app with everything optional left out. It shows how far a goal is from the possible.

These contenders are not limiters: they have no time limits, do not notice a server that has gone
away, and decide nothing.
"""

from __future__ import annotations

import hashlib
import math
import socket
from collections.abc import Callable
from typing import Any

from django_redis import get_redis_connection

from django_slidingwindow import limits
from django_slidingwindow.algorithms.scripts import Script
from django_slidingwindow.http import headers
from django_slidingwindow.policies import Profile
from django_slidingwindow.registry import registry
from django_slidingwindow.stores.protocol import WindowRules

from .base import ALLOWED, LEAST_VIEW, Case, ViewContender

# One command reads each window and one writes it. The reply has the usual size.
_READ_AND_WRITE = """
local call, pack = redis.call, struct.pack
local time = call('TIME')
local reply = pack('>Bi8', 1, time[1] * 1000000 + time[2])
for i = 1, #KEYS do
  local stored = call('GETRANGE', KEYS[i], '0', '259')
  reply = reply .. pack('>BI4i8i8', 1, 1, 0, 1)
  call('SET', KEYS[i], stored .. 'abcd', 'KEEPTTL')
end
return reply
"""


def reads_and_writes(profile: Profile) -> None:
    """Let checks of a profile only read and write its windows, and decide nothing."""
    rules = _prepared_rules(profile)
    prepared = rules.prepared
    sha = hashlib.sha1(_READ_AND_WRITE.encode(), usedforsecurity=False).hexdigest()
    rules.prepared = prepared._replace(
        head=prepared.head.replace(prepared.script.sha.encode(), sha.encode()),
        script=Script(_READ_AND_WRITE, sha),
    )


def exchange(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    """Send our script over a plain socket before the view, and write the header fields."""
    profile = registry.get(f"{case.name}_compact")
    (policy,) = profile.policies
    prepared = _prepared_rules(profile).prepared
    policy_fields = headers._PolicyFields(profile.name, policy, policy.limit)
    pool = get_redis_connection("default").connection_pool.connection_kwargs
    connection = socket.create_connection((pool["host"], pool["port"]))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def limited(request: Any) -> Any:
        name = b"least:%b" % request.META["REMOTE_ADDR"].encode()
        connection.send(b"%b$%d\r\n%b\r\n%b" % (prepared.head, len(name), name, prepared.charging))
        # The reply is between "$30\r\n" and "\r\n".
        _, _, _, remaining, _, reset = prepared.unpack(connection.recv(64)[5:-2])
        response = view(request)
        fields = policy_fields.fields(remaining, math.ceil(reset / 1_000_000))
        response.headers._store.update(fields)
        return response

    return limited


def _prepared_rules(profile: Profile) -> WindowRules:
    """Return the rules of a profile's windows, after a check has prepared their bytes."""
    limits.check(profile, "least")
    return limits.get_limiter().template(profile, profile.policies, 1).rules


VIEWS = [ViewContender("least", LEAST_VIEW, exchange, base="bare", cases=(ALLOWED,))]
