"""Problems of the Redis server, which `check --deploy` reports: a part of the catalog."""

from __future__ import annotations

from .problem import add

UNREACHABLE = add(
    "W111",
    "The Redis server of the cache {alias!r} does not answer: {error}",
    "Start it, or correct LOCATION. Until then, FALLBACK decides.",
)
LOGIN_REFUSED = add(
    "E112",
    "The Redis server {server} refuses the login of the cache {alias!r}: {error}",
    "Correct USERNAME and PASSWORD in the OPTIONS of the cache, or in its LOCATION.",
)
TOO_OLD = add(
    "E113",
    "The Redis server {server} is version {version}; 6.2 is the oldest that works.",
    "Upgrade it. Valkey also works.",
)
REPLICA = add(
    "E114",
    "The Redis server {server} is a replica, which accepts no writes.",
    "Make the primary the first LOCATION of the cache.",
)
EVICTION = add(
    "W115",
    "The Redis server {server} evicts keys when memory is short (maxmemory-policy {policy}).",
    "Use a server whose policy is noeviction. Every window has an expiry, so both volatile-* and "
    "allkeys-* policies delete windows, and refused clients are admitted again.",
)
MISSING_COMMANDS = add(
    "E116",
    "The user of the cache {alias!r} may not run {commands} on the Redis server {server}.",
    "Grant the commands: docs/security-acl.md has the complete line.",
)
MISSING_KEYS = add(
    "E117",
    "The user of the cache {alias!r} may not access keys {pattern} on the Redis server {server}.",
    "Grant the keys: docs/security-acl.md has the complete line.",
)
NO_INSPECTION = add(
    "I118",
    "The user of the cache {alias!r} may not run {commands} on the Redis server {server}: the "
    "admin's live keys and the command slidingwindow cannot show everything.",
    "Grant the commands, or inspect keys with settings that log in as an operator: "
    "docs/security-acl.md has the lines.",
)
NO_INFO = add(
    "I119",
    "The user of the cache {alias!r} may not run INFO on the Redis server {server}: version, "
    "role and eviction policy were not checked.",
    "Grant +info, or run the check with settings that log in as an operator.",
)
NO_REHEARSAL = add(
    "I120",
    "The user of the cache {alias!r} may not run MULTI and DISCARD on the Redis server {server}: "
    "its rights were not checked.",
    "Grant +multi +discard. Without EXEC they run nothing.",
)
ONLY_SYNC = add(
    "I121",
    "The cache {alias!r} has the connection option {name}, which async connections do not support.",
    "Nothing has to be done: limits in async code use synchronous connections in at most 32 "
    "threads, and log in as the alias says. With a credential_provider, or a user name and a "
    "password, they share one connection instead.",
)
