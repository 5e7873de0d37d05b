"""Count the work that scripts make the server do. Its time would depend on the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from django_slidingwindow.algorithms.scripts import Script
from django_slidingwindow.stores.commands import Clock, encode
from django_slidingwindow.stores.protocol import Evaluate

if TYPE_CHECKING:
    from redis import Redis

# Replaces the libraries that a script uses with functions that count. Every loop of a script calls
# at least one of them.
_BEFORE = """
local steps, bytes = 0, 0
local function weigh(...)
  for i = 1, select('#', ...) do
    local value = select(i, ...)
    if type(value) == 'table' then weigh(unpack(value)) end
    if type(value) == 'string' then bytes = bytes + #value end
  end
  return ...
end
local function counting(library)
  return setmetatable({}, {__index = function(_, name)
    return function(...)
      steps = steps + 1
      return weigh(library[name](...))
    end
  end})
end
local call = redis.call
local redis, string, struct = counting(redis), counting(string), counting(struct)
redis.call = function(name, ...)
  steps = steps + 1
  weigh(...)
  local reply = weigh(call(name, ...))
  -- The time of these commands grows with the number of members that they remove.
  if name == 'ZREM' or name == 'ZREMRANGEBYRANK' or name == 'ZREMRANGEBYSCORE' then
    steps = steps + reply
  end
  return reply
end
local function script()
"""
_AFTER = """
end
script()
return {steps, bytes}
"""


class Work(NamedTuple):
    """The work of some calls."""

    steps: int
    """Commands, members that they remove, and calls of Lua's libraries."""
    bytes: int
    """The size of all arguments and replies of commands, and of all strings."""


def work_of(redis: Redis, calls: Iterable[Evaluate], clock: Clock) -> Work:
    """Run the scripts of some calls and return their work."""
    connection = redis.connection_pool.get_connection()
    total = Work(0, 0)
    try:
        for call in calls:
            command = encode(call, clock)
            assert command.script is not None
            source, sha = command.script
            counting = command._replace(script=Script(_BEFORE + source + _AFTER, sha))
            connection.send_packed_command([counting.by_source])
            steps, size = connection.read_response()
            total = Work(total.steps + steps, total.bytes + size)
    finally:
        redis.connection_pool.release(connection)
    return total
