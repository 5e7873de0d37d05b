"""What is left of this app where all that can be left out is: how far a goal is from the possible.

Neither is a limiter. They hold no time limit, see no server that went away, and decide nothing.
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

# One command that reads a window and one that writes it, and a reply of the usual size.
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
    """Lets checks of a profile read and write its windows, and decide nothing."""
    lines = _prepared(profile)
    known = lines.prepared
    sha = hashlib.sha1(_READ_AND_WRITE.encode(), usedforsecurity=False).hexdigest()
    lines.prepared = known._replace(
        head=known.head.replace(known.script.sha.encode(), sha.encode()),
        script=Script(_READ_AND_WRITE, sha),
    )


def exchange(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    """The view after an exchange of our script over a bare socket, with its fields."""
    profile = registry.get(f"{case.name}_compact")
    (policy,) = profile.policies
    known = _prepared(profile).prepared
    form = headers._Form(profile.name, policy, policy.limit)
    pool = get_redis_connection("default").connection_pool.connection_kwargs
    link = socket.create_connection((pool["host"], pool["port"]))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def limited(request: Any) -> Any:
        name = b"least:%b" % request.META["REMOTE_ADDR"].encode()
        link.send(b"%b$%d\r\n%b\r\n%b" % (known.head, len(name), name, known.charging))
        # What stands between "$30\r\n" and "\r\n".
        _, _, _, remaining, _, reset = known.unpack(link.recv(64)[5:-2])
        response = view(request)
        response.headers._store.update(form._write(remaining, math.ceil(reset / 1_000_000)))
        return response

    return limited


def _prepared(profile: Profile) -> WindowRules:
    """The lines of a profile's checks, after one has prepared them."""
    limits.check(profile, "least")
    return limits.get_limiter().template(profile, profile.policies, 1).rules


VIEWS = [ViewContender("least", LEAST_VIEW, exchange, base="bare", cases=(ALLOWED,))]
