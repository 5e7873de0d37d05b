"""Real Redis servers for the tests: started on free loopback ports, always stopped."""

from .cluster import RedisCluster
from .redis import RedisServer
from .sentinel import SentinelGroup

__all__ = ["RedisCluster", "RedisServer", "SentinelGroup"]
