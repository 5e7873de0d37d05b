"""Redis servers for the tests, on free loopback ports. They stop even if the tests crash."""

from .cluster import RedisCluster
from .redis import RedisServer
from .sentinel import SentinelGroup

__all__ = ["RedisCluster", "RedisServer", "SentinelGroup"]
