"""The scripts of well-known articles: a sorted set and a hash, with the client's milliseconds.

The sorted set counts two hits in one millisecond as one, so it admits too many. The variant with
unique members counts both.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django_redis import get_redis_connection

from .base import HASH_NAME, SORTED_SET_NAME, UNIQUE_NAME, Case, Check, Contender

SORTED_SET = """
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
if redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
redis.call('ZADD', KEYS[1], now, now)
redis.call('PEXPIRE', KEYS[1], window)
return 1
"""

UNIQUE = """
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
if redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
redis.call('ZADD', KEYS[1], now, now .. ':' .. math.random(999999))
redis.call('PEXPIRE', KEYS[1], window)
return 1
"""

HASH = """
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local stored, hits, gone = redis.call('HGETALL', KEYS[1]), 0, {}
for i = 1, #stored, 2 do
  if tonumber(stored[i]) <= now - window then
    gone[#gone + 1] = stored[i]
  else
    hits = hits + stored[i + 1]
  end
end
for first = 1, #gone, 5000 do
  redis.call('HDEL', KEYS[1], unpack(gone, first, math.min(first + 4999, #gone)))
end
if hits >= limit then return 0 end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], window)
return 1
"""

SOURCES = {SORTED_SET_NAME: SORTED_SET, UNIQUE_NAME: UNIQUE, HASH_NAME: HASH}


def _contender(name: str, source: str) -> Contender:
    def key_of(case: Case, identifier: str) -> str:
        return f"{name}:{case.name}:{identifier}"

    def make(case: Case) -> Check:
        client = get_redis_connection("default")
        sha = client.script_load(source)
        window = case.window * 1_000

        def check(identifier: str) -> bool:
            now = int(time.time() * 1_000)
            key = key_of(case, identifier)
            return bool(client.evalsha(sha, 1, key, now, window, case.limit))

        return check

    return Contender(name, make, fill=_filler(source, key_of))


def _filler(source: str, key_of: Callable[[Case, str], str]) -> Callable[[Case, str, int], None]:
    def fill(case: Case, identifier: str, hits: int) -> None:
        client = get_redis_connection("default")
        key, now = key_of(case, identifier), int(time.time() * 1_000)
        batch = 1_000
        for first in range(0, hits, batch):
            stamps = [now - hit for hit in range(first, min(first + batch, hits))]
            if source == HASH:
                client.hset(key, mapping=dict.fromkeys(stamps, 1))
            elif source == UNIQUE:
                client.zadd(key, {f"{stamp}:{stamp % 999_999}": stamp for stamp in stamps})
            else:
                client.zadd(key, {str(stamp): stamp for stamp in stamps})
        client.pexpire(key, case.window * 1_000)

    return fill


CONTENDERS = [_contender(name, source) for name, source in SOURCES.items()]
