"""All problems that checks can report: the id, the message and the hint of each.

An id is never reused for another problem. docs/checks.md has a row for each.
"""

from __future__ import annotations

from ..guard.installed import NOT_INSTALLED, NOT_INSTALLED_HINT
from ..stores import aliases
from .problem import Problem

CATALOG: dict[str, Problem] = {}


def _add(number: str, text: str, hint: str) -> Problem:
    problem = CATALOG[number] = Problem(number, text, hint)
    return problem


# Raised by `require_installed`, because checks of an app that is not installed do not run.
APP_MISSING = _add("E001", NOT_INSTALLED, NOT_INSTALLED_HINT)

# The setting itself
NOT_A_DICT = _add(
    "E002",
    "SLIDING_WINDOW is not a dict.",
    "Write SLIDING_WINDOW = {...}, or leave it out for the defaults.",
)
UNKNOWN_KEY = _add(
    "E003",
    "SLIDING_WINDOW has an unknown key {key!r}: {near}",
    "Correct or remove the key: it has no effect.",
)
WRONG_VALUE = _add(
    "E004",
    "SLIDING_WINDOW[{key!r}] is {value!r}, but must be {wanted}.",
    "Correct the value, or remove the key for the default.",
)
SHORT_HASH_KEY = _add(
    "W005",
    "SLIDING_WINDOW['HASH_KEY'] has {length} bytes.",
    "Use at least 16 random bytes, or None to derive the key from SECRET_KEY. If the key can be "
    "guessed, API keys and session ids can be guessed from their hashes.",
)

# The cache alias
CLIENT_RETRIES = _add(
    "W010",
    "TRANSPORT is 'client', and the cache {alias!r} sends commands again ({names}).",
    "Remove these options: a check whose reply was lost may be charged twice.",
)
NO_ALIAS = _add("E011", *aliases.NO_ALIAS)
DJANGO_BACKEND = _add("E012", *aliases.DJANGO_BACKEND)
OTHER_BACKEND = _add("E013", *aliases.OTHER_BACKEND)
SHARDED = _add("E014", *aliases.SHARDED)
BROKEN_ALIAS = _add("E015", *aliases.BROKEN)
SHARED_POOL = _add(
    "W016",
    "The caches {alias!r} and {other!r} have the same LOCATION and different OPTIONS ({names}).",
    "django-redis keeps one connection pool for each LOCATION, with the options of the cache that "
    "is used first. Give the limits their own LOCATION, for example another database number, or "
    "give both caches the same OPTIONS.",
)
SHORT_TIME_OUT = _add(
    "W017",
    "The cache {alias!r} times out after {seconds} s, which is less than LATENCY_BUDGET "
    "({budget} s).",
    "Raise OPTIONS['SOCKET_TIMEOUT'], or lower LATENCY_BUDGET: the shorter one applies.",
)
NO_CONNECTION = _add("E018", *aliases.NO_CONNECTION)
IGNORED_KEYS = _add(
    "W019",
    "The cache {alias!r} has {names}, which the limits do not use.",
    "Set SLIDING_WINDOW['PREFIX']: every key of the limits starts with it. Sites that share a "
    "database and have the same PREFIX share their windows. If that is intended, set the default, "
    "'throttle', to turn off this warning.",
)
CLIENT_TIME_OUT = _add(
    "W020",
    "TRANSPORT is 'client', and the cache {alias!r} waits {wait} for a reply.",
    "Set its OPTIONS['SOCKET_TIMEOUT'] and OPTIONS['SOCKET_CONNECT_TIMEOUT'] to LATENCY_BUDGET.",
)
ALIAS_PROBLEMS = {
    aliases.DJANGO_BACKEND: DJANGO_BACKEND,
    aliases.OTHER_BACKEND: OTHER_BACKEND,
    aliases.SHARDED: SHARDED,
    aliases.BROKEN: BROKEN_ALIAS,
    aliases.NO_CONNECTION: NO_CONNECTION,
}

# Profiles
BAD_PROFILE = _add("E021", "{path}: {problem}", "Correct the profile.")
UNKNOWN_IN_CODE = _add(
    "E022",
    "{view} uses the unknown profile {name!r}: {near}",
    "Correct the name, or add the profile to SLIDING_WINDOW['PROFILES'].",
)
UNKNOWN_IN_RULE = _add(
    "E023",
    "{path} uses the unknown profile {name!r}: {near}",
    "Correct the name, or add the profile to SLIDING_WINDOW['PROFILES'].",
)
LIMIT_SIGNATURE = _add(
    "E024",
    "The limit of the profile {name!r}, {function}, cannot be called with (identifier, request).",
    "Define it as def limit(identifier, request). It returns a rate, or None for no limit. "
    "Commands and the admin pass None as the request.",
)
CHOICE_SIGNATURE = _add(
    "E025",
    "{view} chooses its profile with {function}, which cannot be called with (request).",
    "Define it as def choose(request). It returns the name of a profile, several names, or None.",
)

# Rules of the middleware
BAD_RULE = _add("E031", "{path}: {problem}", "Correct the rule.")
UNKNOWN_URL = _add(
    "W032",
    "{path} is {name!r}, which is not in the URLconf: {near}",
    "Correct the name: the rule never matches.",
)

# Axes and identities
NO_TENANT = _add(
    "E041",
    "The profile {name!r} counts by tenant, and SLIDING_WINDOW['IDENTITIES'] has no 'tenant'.",
    "Set IDENTITIES = {'tenant': 'shop.identity.tenant'}: the dotted path of a function that takes "
    "the request and returns its tenant as text, or None to skip the profile.",
)
UNKNOWN_AXIS = _add(
    "E042",
    "The profile {name!r} counts by the unknown axis {axis!r}: {near}",
    "Correct the axis, or add a function for it to SLIDING_WINDOW['IDENTITIES'].",
)
NO_RESOLVER = _add(
    "E043",
    "{path}: {error}",
    "Set it to the dotted path of a function with one argument, the request.",
)
RESOLVER_SIGNATURE = _add(
    "E044",
    "{path}, {function}, cannot be called with (request).",
    "Define it as def identity(request). It returns text, or None to skip the profile.",
)
NO_SESSIONS = _add(
    "W045",
    "The profile {name!r} counts by session, and MIDDLEWARE has no SessionMiddleware.",
    "Add 'django.contrib.sessions.middleware.SessionMiddleware': without it, every client is "
    "anonymous.",
)
NO_USERS = _add(
    "W046",
    "The profile {name!r} counts by user, and MIDDLEWARE has no AuthenticationMiddleware.",
    "Add 'django.contrib.auth.middleware.AuthenticationMiddleware', unless something else sets "
    "request.user: without it, every client is anonymous.",
)
NO_SESSION_KEYS = _add(
    "W047",
    "The profile {name!r} counts by session, and the session engine {engine} is not known to keep "
    "sessions on the server.",
    "Use an engine that keeps sessions on the server: Django's db, cached_db, cache or file. "
    "Sessions in signed cookies are never counted, because a client can keep every cookie that it "
    "received. Silence this check for an engine that has no data for an id that it did not issue.",
)

# Proxies and exemptions
BAD_PROXY = _add(
    "E051",
    "SLIDING_WINDOW['TRUSTED_PROXIES'] has {value!r}: {problem}",
    "List addresses and networks, such as '10.0.0.0/8' or 'fd00::/8', and 'unix' for a proxy "
    "that connects through a unix socket.",
)
TRUSTS_ALL = _add(
    "W052",
    "SLIDING_WINDOW['TRUSTED_PROXIES'] has {value!r}, which trusts every client.",
    "List only the addresses of your proxies: a trusted client can send any address in "
    "X-Forwarded-For, and so avoid every limit by address.",
)
BAD_EXEMPTION = _add(
    "E053",
    "SLIDING_WINDOW['EXEMPT'] has {value!r}: {problem}",
    "List networks such as '10.0.0.0/8', dotted paths of functions that take the request and "
    "return a bool, and 'staff'.",
)
BAD_RESPONSE = _add(
    "E054",
    "SLIDING_WINDOW['RESPONSE'] is {value!r}: {problem}",
    "Set it to the dotted path of a function (request, decision) that returns an HttpResponse.",
)
EXEMPT_PROXY = _add(
    "W055",
    "SLIDING_WINDOW['EXEMPT'] has {value!r}, which overlaps {proxy!r} in TRUSTED_PROXIES.",
    "List only proxies in TRUSTED_PROXIES, and only networks without a proxy in EXEMPT. A trusted "
    "proxy is never exempt by its own address, because it forwards requests of others.",
)

# The middleware
MIDDLEWARE_TWICE = _add(
    "E061",
    "MIDDLEWARE lists RateLimitMiddleware {count} times.",
    "Keep the first one.",
)
RULES_WITHOUT_MIDDLEWARE = _add(
    "W062",
    "SLIDING_WINDOW['RULES'] is set, and MIDDLEWARE has no RateLimitMiddleware.",
    "Add 'django_slidingwindow.middleware.RateLimitMiddleware' to MIDDLEWARE: only it uses the "
    "rules.",
)
UNCHARGED_OPERATION = _add(
    "E063",
    "The async django-ninja operation {name} has a ProfileThrottle that cannot be charged.",
    'Call api.add_decorator(throttled, mode="view") with throttled from '
    "django_slidingwindow.contrib.ninja, or add RateLimitMiddleware to MIDDLEWARE: ninja calls "
    "throttles synchronously, where a call to Redis would block the event loop.",
)

# With --deploy: settings that are only useful in development
SWITCHED_OFF = _add(
    "W101",
    "SLIDING_WINDOW['ENABLED'] is False: nothing is limited.",
    "Set it to True in production.",
)
ONE_PROCESS = _add(
    "I102",
    "FALLBACK is 'local', and SLIDING_WINDOW has no FALLBACK_PROCESSES.",
    "Set it to the number of processes that serve requests, on all hosts: while Redis is away, "
    "each of them admits its share of a limit. Even 1 turns off this message.",
)
NO_PROXIES = _add(
    "I103",
    "The profile {name!r} counts by address, and SLIDING_WINDOW has no TRUSTED_PROXIES.",
    "Behind a proxy, list its address: otherwise all clients have the address of the proxy and "
    "share one limit. If the server listens on a unix socket, add 'unix': otherwise clients have "
    "no address at all. Without a proxy, set it to [] to turn off this message.",
)

# With --deploy: the server
UNREACHABLE = _add(
    "W111",
    "The Redis server of the cache {alias!r} does not answer: {error}",
    "Start it, or correct LOCATION. Until then, FALLBACK decides.",
)
LOGIN_REFUSED = _add(
    "E112",
    "The Redis server {server} refuses the login of the cache {alias!r}: {error}",
    "Correct USERNAME and PASSWORD in the OPTIONS of the cache, or in its LOCATION.",
)
TOO_OLD = _add(
    "E113",
    "The Redis server {server} is version {version}; 6.2 is the oldest that works.",
    "Upgrade it. Valkey also works.",
)
REPLICA = _add(
    "E114",
    "The Redis server {server} is a replica, which accepts no writes.",
    "Make the primary the first LOCATION of the cache.",
)
EVICTION = _add(
    "W115",
    "The Redis server {server} evicts keys when memory is short (maxmemory-policy {policy}).",
    "Use a server whose policy is noeviction. Every window has an expiry, so both volatile-* and "
    "allkeys-* policies delete windows, and refused clients are admitted again.",
)
MISSING_COMMANDS = _add(
    "E116",
    "The user of the cache {alias!r} may not run {commands} on the Redis server {server}.",
    "Grant the commands: docs/security-acl.md has the complete line.",
)
MISSING_KEYS = _add(
    "E117",
    "The user of the cache {alias!r} may not access keys {pattern} on the Redis server {server}.",
    "Grant the keys: docs/security-acl.md has the complete line.",
)
NO_INSPECTION = _add(
    "I118",
    "The user of the cache {alias!r} may not run {commands} on the Redis server {server}: the "
    "admin's live keys and the command slidingwindow cannot show everything.",
    "Grant the commands, or inspect keys with settings that log in as an operator: "
    "docs/security-acl.md has the lines.",
)
NO_INFO = _add(
    "I119",
    "The user of the cache {alias!r} may not run INFO on the Redis server {server}: version, "
    "role and eviction policy were not checked.",
    "Grant +info, or run the check with settings that log in as an operator.",
)
NO_REHEARSAL = _add(
    "I120",
    "The user of the cache {alias!r} may not run MULTI and DISCARD on the Redis server {server}: "
    "its rights were not checked.",
    "Grant +multi +discard. Without EXEC they run nothing.",
)
ONLY_SYNC = _add(
    "I121",
    "The cache {alias!r} has the connection option {name}, which async connections do not support.",
    "Nothing has to be done: limits in async code use synchronous connections in at most 32 "
    "threads, and log in as the alias says. With a credential_provider, or a user name and a "
    "password, they share one connection instead.",
)
