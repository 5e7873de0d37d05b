"""`keys --top` with 200,000 windows needs no more memory than with a thousand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from django.test import override_settings

from django_slidingwindow import limits

if TYPE_CHECKING:
    from redis import Redis

FEW, MANY = 1_000, 200_000
# A list of the keys would need 20 MB.
MOST_GROWTH = 5 * 1024 * 1024

# Copies the value of a first hit to many keys, in slices: a longer script would make Redis busy.
SLICE = 100_000
FILL = """
local scopes = {'tenant_free', 'tenant_paid'}
local value = redis.call('GET', 'throttle:tenant:{first}:tenant_free:c86400')
for i = ARGV[1], ARGV[2] do
  local key = 'throttle:tenant:{t' .. i .. '}:' .. scopes[i % 2 + 1] .. ':c86400'
  redis.call('SET', key, value, 'EX', 86400)
end
"""
# Only of this process: getrusage would include the memory of the parent before the start.
PROGRAM = """
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:]])
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def fill(redis: Redis, first: int, last: int) -> None:
    for start in range(first, last + 1, SLICE):
        redis.eval(FILL, 0, start, min(last, start + SLICE - 1))


def peak(url: str) -> tuple[list[str], int]:
    """Run the command in a new process. Return the listed identifiers and the peak memory."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COVERAGE_PROCESS")  # coverage would make this several times slower
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "slidingwindow", "keys", "--top", "10", "--json"],
        env={
            **environment,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TEST_REDIS_URL": url,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, kilobytes = done.stdout.splitlines()
    return [json.loads(line)["identifier"] for line in lines], int(kilobytes) * 1024


def test_top_of_many_keys_needs_no_more_memory_than_of_a_thousand(fresh_server):
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}}
    with override_settings(CACHES=caches):
        limits.check("tenant_free", "first")
        for used in range(10):
            assert limits.check("tenant_free", f"busy{used}", cost=50 + used).allowed
    most_used = [f"busy{used}" for used in reversed(range(10))]
    with fresh_server.client() as redis:
        fill(redis, 1, FEW)
        listed, few = peak(fresh_server.url)
        assert listed == most_used
        fill(redis, FEW + 1, MANY)
        assert redis.dbsize() == MANY + 11
    listed, many = peak(fresh_server.url)
    assert listed == most_used
    assert many - few < MOST_GROWTH, f"{few:,} bytes grew to {many:,}"
