"""Every problem that a check can report: its id, what it says and what to do.

An id is never used for another problem. docs/checks.md has a row for each.
"""

from __future__ import annotations

from ..guard.installed import NOT_INSTALLED, NOT_INSTALLED_HINT
from ..stores import aliases
from .problem import Problem

CATALOG: dict[str, Problem] = {}


def _add(number: str, text: str, hint: str) -> Problem:
    problem = CATALOG[number] = Problem(number, text, hint)
    return problem


# Raised by `require_installed`: without the app, no check of it runs.
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
    "Correct or remove the key: nothing reads it.",
)
WRONG_VALUE = _add(
    "E004",
    "SLIDING_WINDOW[{key!r}] is {value!r}, but must be {wanted}.",
    "Correct the value, or remove the key for the default.",
)
SHORT_HASH_KEY = _add(
    "W005",
    "SLIDING_WINDOW['HASH_KEY'] has {length} bytes.",
    "Use at least 16 random bytes, or None to derive the key from SECRET_KEY: with a key that "
    "can be guessed, API keys and session ids can be guessed from their hashes.",
)

# The cache alias
CLIENT_RETRIES = _add(
    "W010",
    "TRANSPORT is 'client', and the cache {alias!r} sends commands again ({names}).",
    "Remove that from its options: a check whose reply was lost may have been charged.",
)
NO_ALIAS = _add("E011", *aliases.NO_ALIAS)
DJANGO_BACKEND = _add("E012", *aliases.DJANGO_BACKEND)
OTHER_BACKEND = _add("E013", *aliases.OTHER_BACKEND)
SHARDED = _add("E014", *aliases.SHARDED)
BROKEN_ALIAS = _add("E015", *aliases.BROKEN)
SHARED_POOL = _add(
    "W016",
    "The caches {alias!r} and {other!r} have the same LOCATION and different OPTIONS ({names}).",
    "django-redis keeps one pool of connections for each LOCATION, with the options of the cache "
    "that is used first. Give the limits a LOCATION of their own, such as another database "
    "number, or both caches the same OPTIONS.",
)
SHORT_TIME_OUT = _add(
    "W017",
    "The cache {alias!r} gives up after {seconds} s, before LATENCY_BUDGET ({budget} s) is spent.",
    "Raise OPTIONS['SOCKET_TIMEOUT'], or lower LATENCY_BUDGET: the shorter one counts.",
)
NO_CONNECTION = _add("E018", *aliases.NO_CONNECTION)
IGNORED_KEYS = _add(
    "W019",
    "The cache {alias!r} has {names}, which the limits do not use.",
    "Set SLIDING_WINDOW['PREFIX']: it begins every key of the limits. Sites that share a database "
    "and have the same PREFIX share their windows. Where that is right, write the default, "
    "'throttle', and this is not said again.",
)
CLIENT_TIME_OUT = _add(
    "W020",
    "TRANSPORT is 'client', and the cache {alias!r} waits {wait} for a reply.",
    "Set its OPTIONS['SOCKET_TIMEOUT'] and OPTIONS['SOCKET_CONNECT_TIMEOUT'] to LATENCY_BUDGET.",
)
OF_ALIAS = {
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
    "Write it as def limit(identifier, request): it returns a rate, or None for no limit. "
    "Commands and the admin pass None for the request.",
)
CHOICE_SIGNATURE = _add(
    "E025",
    "{view} chooses its profile by {function}, which cannot be called with (request).",
    "Write it as def choose(request): it returns a profile's name, several, or None.",
)

# Rules of the middleware
BAD_RULE = _add("E031", "{path}: {problem}", "Correct the rule.")
UNKNOWN_URL = _add(
    "W032",
    "{path} is {name!r}, which the URLconf does not have: {near}",
    "Correct the name: as it stands, the rule never matches.",
)

# Whom a profile counts
NO_TENANT = _add(
    "E041",
    "The profile {name!r} counts by tenant, and SLIDING_WINDOW['IDENTITIES'] has no 'tenant'.",
    "Say how a request tells its tenant: IDENTITIES = {'tenant': 'shop.identity.tenant'}, the "
    "dotted path of a function request -> str, or None to skip.",
)
UNKNOWN_AXIS = _add(
    "E042",
    "The profile {name!r} counts by the unknown axis {axis!r}: {near}",
    "Correct the axis, or add a function for it to SLIDING_WINDOW['IDENTITIES'].",
)
NO_RESOLVER = _add(
    "E043",
    "{path}: {error}",
    "Name a function of one argument, the request, by its dotted path.",
)
RESOLVER_SIGNATURE = _add(
    "E044",
    "{path}, {function}, cannot be called with (request).",
    "Write it as def identity(request): it returns text, or None to skip the profile.",
)
NO_SESSIONS = _add(
    "W045",
    "The profile {name!r} counts by session, and MIDDLEWARE has no SessionMiddleware.",
    "Add 'django.contrib.sessions.middleware.SessionMiddleware': without a session, everybody is "
    "anonymous.",
)
NO_USERS = _add(
    "W046",
    "The profile {name!r} counts by user, and MIDDLEWARE has no AuthenticationMiddleware.",
    "Add 'django.contrib.auth.middleware.AuthenticationMiddleware', unless something else sets "
    "request.user: without a user, everybody is anonymous.",
)
NO_SESSION_KEYS = _add(
    "W047",
    "The profile {name!r} counts by session, and the session engine {engine} does not tell which "
    "sessions exist.",
    "Use an engine that keeps sessions on the server: Django's db, cached_db, cache or file. "
    "Sessions in signed cookies are never counted, because a client may keep every cookie that it "
    "was given. Silence this check for an engine that has no data for an id it did not issue.",
)

# Proxies and exemptions
BAD_PROXY = _add(
    "E051",
    "SLIDING_WINDOW['TRUSTED_PROXIES'] has {value!r}: {problem}",
    "List addresses and networks, such as '10.0.0.0/8' or 'fd00::/8', and 'unix' for a proxy "
    "that connects by a unix socket.",
)
TRUSTS_ALL = _add(
    "W052",
    "SLIDING_WINDOW['TRUSTED_PROXIES'] has {value!r}, which trusts everybody.",
    "List the addresses of your proxies alone: whoever is trusted may claim any client address "
    "in X-Forwarded-For, and so escape every limit by address.",
)
BAD_EXEMPTION = _add(
    "E053",
    "SLIDING_WINDOW['EXEMPT'] has {value!r}: {problem}",
    "List networks such as '10.0.0.0/8', dotted paths of functions request -> bool, and 'staff'.",
)
BAD_RESPONSE = _add(
    "E054",
    "SLIDING_WINDOW['RESPONSE'] is {value!r}: {problem}",
    "Name a function (request, decision) -> HttpResponse by its dotted path.",
)
EXEMPT_PROXY = _add(
    "W055",
    "SLIDING_WINDOW['EXEMPT'] has {value!r}, which overlaps {proxy!r} in TRUSTED_PROXIES.",
    "Name the proxies alone in TRUSTED_PROXIES, and in EXEMPT networks without a proxy. A trusted "
    "proxy is never exempt by its address, because it speaks for others.",
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
    "Add 'django_slidingwindow.middleware.RateLimitMiddleware' to MIDDLEWARE: nothing else reads "
    "the rules.",
)
UNCHARGED_OPERATION = _add(
    "E063",
    "The async django-ninja operation {name} has a ProfileThrottle that nothing can charge.",
    'Call api.add_decorator(throttled, mode="view") with throttled of '
    "django_slidingwindow.contrib.ninja, or add RateLimitMiddleware to MIDDLEWARE: ninja asks "
    "throttles synchronously, where a call to Redis would stop the event loop.",
)

# With --deploy: settings that are right in development
SWITCHED_OFF = _add(
    "W101",
    "SLIDING_WINDOW['ENABLED'] is False: nothing is limited.",
    "Set it to True in production.",
)
ONE_PROCESS = _add(
    "I102",
    "FALLBACK is 'local', and SLIDING_WINDOW has no FALLBACK_PROCESSES.",
    "Set it to the number of processes that serve requests, on all hosts: while Redis is away, "
    "each of them admits that share of a limit. Written as 1, this is not said again.",
)
NO_PROXIES = _add(
    "I103",
    "The profile {name!r} counts by address, and SLIDING_WINDOW has no TRUSTED_PROXIES.",
    "Behind a proxy, name it: else all clients have the proxy's address and share one limit. "
    "Where the server listens on a unix socket, add 'unix': else clients have no address at all. "
    "Written as [], this is not said again.",
)

# With --deploy: the server
UNREACHABLE = _add(
    "W111",
    "The Redis server of the cache {alias!r} does not answer: {error}",
    "Start it, or correct LOCATION. The site works without it, by FALLBACK.",
)
LOGIN_REFUSED = _add(
    "E112",
    "The Redis server {server} refuses the login of the cache {alias!r}: {error}",
    "Correct USERNAME and PASSWORD in its OPTIONS, or in LOCATION.",
)
TOO_OLD = _add(
    "E113",
    "The Redis server {server} is version {version}; 6.2 is the oldest that works.",
    "Upgrade it. Valkey works as well.",
)
REPLICA = _add(
    "E114",
    "The Redis server {server} is a replica, which cannot count.",
    "Let the first LOCATION of the cache name the primary.",
)
EVICTION = _add(
    "W115",
    "The Redis server {server} evicts keys when memory is short (maxmemory-policy {policy}).",
    "Use a server whose policy is noeviction. Every window has an expiry, so the volatile-* "
    "policies drop windows as the allkeys-* do, and whoever was refused is admitted again.",
)
MISSING_COMMANDS = _add(
    "E116",
    "The user of the cache {alias!r} may not run {commands} on the Redis server {server}.",
    "Grant the commands: docs/security-acl.md has the whole line.",
)
MISSING_KEYS = _add(
    "E117",
    "The user of the cache {alias!r} may not touch keys {pattern} on the Redis server {server}.",
    "Grant the keys: docs/security-acl.md has the whole line.",
)
NO_INSPECTION = _add(
    "I118",
    "The user of the cache {alias!r} may not run {commands} on the Redis server {server}: the "
    "admin's live keys and the command slidingwindow cannot show everything.",
    "Grant them, or look at keys with settings that log in as an operator: "
    "docs/security-acl.md has the lines.",
)
NO_INFO = _add(
    "I119",
    "The user of the cache {alias!r} may not run INFO on the Redis server {server}: version, "
    "role and eviction policy were not checked.",
    "Grant +info, or check with settings that log in as an operator.",
)
NO_REHEARSAL = _add(
    "I120",
    "The user of the cache {alias!r} may not run MULTI and DISCARD on the Redis server {server}: "
    "its rights were not checked.",
    "Grant +multi +discard. Without EXEC they run nothing.",
)
ONLY_SYNC = _add(
    "I121",
    "The cache {alias!r} has the connection option {name}, which has no asynchronous form.",
    "Nothing, if that is meant: checks in async code use synchronous connections in at most 32 "
    "threads, and log in as the alias says. A credential_provider, or a user name and a password, "
    "let them share one connection instead.",
)
