"""All problems that checks can report: the id, the message and the hint of each.

An id is never reused for another problem. docs/checks.md has a row for each.
"""

from __future__ import annotations

from ..guard.installation import NOT_INSTALLED, NOT_INSTALLED_HINT
from ..stores import aliases
from .problem import CATALOG as _ALL
from .problem import add

# Raised by `require_installed`, because checks of an app that is not installed do not run.
APP_MISSING = add("E001", NOT_INSTALLED, NOT_INSTALLED_HINT)

# The setting itself
NOT_A_DICT = add(
    "E002",
    "SLIDING_WINDOW is not a dict.",
    "Write SLIDING_WINDOW = {...}, or leave it out for the defaults.",
)
UNKNOWN_KEY = add(
    "E003",
    "SLIDING_WINDOW has an unknown key {key!r}: {near}",
    "Correct or remove the key: it has no effect.",
)
WRONG_VALUE = add(
    "E004",
    "SLIDING_WINDOW[{key!r}] is {value!r}, but must be {wanted}.",
    "Correct the value, or remove the key for the default.",
)
SHORT_HASH_KEY = add(
    "W005",
    "SLIDING_WINDOW['HASH_KEY'] has {length} bytes.",
    "Use at least 16 random bytes, or None to derive the key from SECRET_KEY. If the key can be "
    "guessed, API keys and session ids can be guessed from their hashes.",
)

# The cache alias
CLUSTER_OPTIONS = add(
    "W009",
    "The addresses in LOCATION of the cache {alias!r} differ in their options ({names}).",
    "Give all addresses the same scheme, user, password and query, or set these in OPTIONS: the "
    "limits use the options of the first address for all nodes of the cluster.",
)
CLIENT_RETRIES = add(
    "W010",
    "TRANSPORT is 'client', and the cache {alias!r} sends commands again ({names}).",
    "Remove these options: a check whose reply was lost may be charged twice.",
)
NO_ALIAS = add("E011", *aliases.NO_ALIAS)
DJANGO_BACKEND = add("E012", *aliases.DJANGO_BACKEND)
OTHER_BACKEND = add("E013", *aliases.OTHER_BACKEND)
SHARDED = add("E014", *aliases.SHARDED)
BROKEN_ALIAS = add("E015", *aliases.BROKEN)
SHARED_POOL = add(
    "W016",
    "The caches {alias!r} and {other!r} have the same LOCATION and different OPTIONS ({names}).",
    "django-redis keeps one connection pool for each LOCATION, with the options of the cache that "
    "is used first. Give the limits their own LOCATION, for example another database number, or "
    "give both caches the same OPTIONS.",
)
SHORT_TIME_OUT = add(
    "W017",
    "The cache {alias!r} times out after {seconds} s, which is less than LATENCY_BUDGET "
    "({budget} s).",
    "Raise OPTIONS['SOCKET_TIMEOUT'], or lower LATENCY_BUDGET: the shorter one applies.",
)
NO_CONNECTION = add("E018", *aliases.NO_CONNECTION)
IGNORED_KEYS = add(
    "W019",
    "The cache {alias!r} has {names}, which the limits do not use.",
    "Set SLIDING_WINDOW['PREFIX']: every key of the limits starts with it. Sites that share a "
    "database and have the same PREFIX share their windows. If that is intended, set the default, "
    "'throttle', to turn off this warning.",
)
CLIENT_TIME_OUT = add(
    "W020",
    "TRANSPORT is 'client', and the cache {alias!r} waits up to {wait} for a reply.",
    "Set its OPTIONS['SOCKET_TIMEOUT'] and OPTIONS['SOCKET_CONNECT_TIMEOUT'] to LATENCY_BUDGET.",
)

# Profiles
BAD_PROFILE = add("E021", "{path}: {problem}", "Correct the profile.")
UNKNOWN_IN_CODE = add(
    "E022",
    "{view} uses the unknown profile {name!r}: {near}",
    "Correct the name, or add the profile to SLIDING_WINDOW['PROFILES'].",
)
UNKNOWN_IN_RULE = add(
    "E023",
    "{path} uses the unknown profile {name!r}: {near}",
    "Correct the name, or add the profile to SLIDING_WINDOW['PROFILES'].",
)
LIMIT_SIGNATURE = add(
    "E024",
    "The limit of the profile {name!r}, {function}, cannot be called with (identifier, request).",
    "Define it as def limit(identifier, request). It returns a rate, or None for no limit. "
    "Commands and the admin pass None as the request.",
)
CHOICE_SIGNATURE = add(
    "E025",
    "{view} chooses its profile with {function}, which cannot be called with (request).",
    "Define it as def choose(request). It returns the name of a profile, several names, or None.",
)
TIER_SIGNATURE = add(
    "E030",
    "The tier of the profile {name!r}, {function}, cannot be called with (identifier, request).",
    "Define it as def tier(identifier, request). It returns the name of one of the tiers. "
    "Commands and the admin pass None as the request.",
)
INFLIGHT_NOT_ASKED = add(
    "E037",
    "{path}: {problem}",
    "Remove the key, or give 'inflight' a profile of its own: a view may name several profiles.",
)

# Leases
COUNTER_LEASE = add(
    "E026",
    "{path}: {problem}",
    "Remove the lease, or choose another algorithm: compact, log or buckets.",
)
LARGE_LEASE = add(
    "W027",
    "The profile {name!r} leases {lease} hits to each of {processes} processes, together more than "
    "a twentieth of its limit of {limit}.",
    "Lower 'lease', or remove it: near the limit every request asks Redis anyway. The number of "
    "processes is FALLBACK_PROCESSES.",
)
LONG_LEASE = add(
    "W028",
    "The profile {name!r} leases hits for {seconds} s, more than a tenth of its window of "
    "{window} s.",
    "Lower 'lease_seconds', or remove it for the default: each hit counts for that much longer.",
)
MIXED_LEASES = add(
    "W029",
    "The profiles {name!r} and {other!r} share a window and lease for different times.",
    "Give both the same 'lease' and 'lease_seconds': otherwise hits that one of them leases leave "
    "the window too early for the other one.",
)

# Penalties
PENALTY_WITH = add(
    "E071",
    "{path}: {problem}",
    "Remove the penalty, or what it cannot be used with: 'lease', or the mode 'deferred'.",
)
MIXED_PENALTIES = add(
    "W072",
    "The profiles {name!r} and {other!r} share a penalty and describe it differently.",
    "Give both the same 'penalty', or one of them another 'scope': otherwise the first profile of "
    "a request decides.",
)
COMMON_PENALTY = add(
    "W073",
    "The profile {name!r} has a penalty and counts by {axis!r}, which all clients share.",
    "Count by what tells clients apart, such as 'ip', or remove the penalty: a block refuses "
    "everybody.",
)

# Rules of the middleware
BAD_RULE = add("E031", "{path}: {problem}", "Correct the rule.")
UNKNOWN_URL = add(
    "W032",
    "{path} is {name!r}, which is not in the URLconf: {near}",
    "Correct the name: the rule never matches.",
)

# Axes and identities
NO_TENANT = add(
    "E041",
    "The profile {name!r} counts by tenant, and SLIDING_WINDOW['IDENTITIES'] has no 'tenant'.",
    "Set IDENTITIES = {'tenant': 'shop.identity.tenant'}: the dotted path of a function that takes "
    "the request and returns its tenant as a string, or None to skip the profile.",
)
UNKNOWN_AXIS = add(
    "E042",
    "The profile {name!r} counts by the unknown axis {axis!r}: {near}",
    "Correct the axis, or add a function for it to SLIDING_WINDOW['IDENTITIES'].",
)
NO_RESOLVER = add(
    "E043",
    "{path}: {error}",
    "Set it to the dotted path of a function with one argument, the request.",
)
RESOLVER_SIGNATURE = add(
    "E044",
    "{path}, {function}, cannot be called with (request).",
    "Define it as def identity(request). It returns a string, or None to skip the profile.",
)
NO_SESSIONS = add(
    "W045",
    "The profile {name!r} counts by session, and MIDDLEWARE has no SessionMiddleware.",
    "Add 'django.contrib.sessions.middleware.SessionMiddleware': without it, every client is "
    "anonymous.",
)
NO_USERS = add(
    "W046",
    "The profile {name!r} counts by user, and MIDDLEWARE has no AuthenticationMiddleware.",
    "Add 'django.contrib.auth.middleware.AuthenticationMiddleware', unless something else sets "
    "request.user: without it, every client is anonymous.",
)
NO_SESSION_KEYS = add(
    "W047",
    "The profile {name!r} counts by session, and the session engine {engine} is not known to keep "
    "sessions on the server.",
    "Use an engine that keeps sessions on the server: Django's db, cached_db, cache or file. "
    "Sessions in signed cookies are never counted, because a client can keep every cookie that it "
    "received. Silence this check for an engine that has no data for an id that it did not issue.",
)

# Proxies and exemptions
BAD_PROXY = add(
    "E051",
    "SLIDING_WINDOW['TRUSTED_PROXIES'] has {value!r}: {problem}",
    "List addresses and networks, such as '10.0.0.0/8' or 'fd00::/8', and 'unix' for a proxy "
    "that connects through a unix socket.",
)
TRUSTS_ALL = add(
    "W052",
    "SLIDING_WINDOW['TRUSTED_PROXIES'] has {value!r}, which trusts every client.",
    "List only the addresses of your proxies: a trusted client can send any address in "
    "X-Forwarded-For, and so avoid every limit by address.",
)
BAD_EXEMPTION = add(
    "E053",
    "SLIDING_WINDOW['EXEMPT'] has {value!r}: {problem}",
    "List networks such as '10.0.0.0/8', dotted paths of functions that take the request and "
    "return a bool, and 'staff'.",
)
BAD_RESPONSE = add(
    "E054",
    "SLIDING_WINDOW['RESPONSE'] is {value!r}: {problem}",
    "Set it to the dotted path of a function (request, decision) that returns an HttpResponse.",
)
EXEMPT_PROXY = add(
    "W055",
    "SLIDING_WINDOW['EXEMPT'] has {value!r}, which overlaps {proxy!r} in TRUSTED_PROXIES.",
    "List only proxies in TRUSTED_PROXIES, and only networks without a proxy in EXEMPT. A trusted "
    "proxy is never exempt by its own address, because it forwards requests of others.",
)

# The middleware
MIDDLEWARE_TWICE = add(
    "E061",
    "MIDDLEWARE lists RateLimitMiddleware {count} times.",
    "Keep the first one.",
)
RULES_WITHOUT_MIDDLEWARE = add(
    "W062",
    "SLIDING_WINDOW['RULES'] is set, and MIDDLEWARE has no RateLimitMiddleware.",
    "Add 'django_slidingwindow.middleware.RateLimitMiddleware' to MIDDLEWARE: only it uses the "
    "rules.",
)
UNCHARGED_OPERATION = add(
    "E063",
    "The async django-ninja operation {name} has a ProfileThrottle that cannot be charged.",
    'Call api.add_decorator(throttled, mode="view") with throttled from '
    "django_slidingwindow.contrib.ninja, or add RateLimitMiddleware to MIDDLEWARE: ninja calls "
    "throttles synchronously, where a call to Redis would block the event loop.",
)

# With --deploy: settings that are only useful in development
SWITCHED_OFF = add(
    "W101",
    "SLIDING_WINDOW['ENABLED'] is False: nothing is limited.",
    "Set it to True in production.",
)
ONE_PROCESS = add(
    "I102",
    "FALLBACK is 'local', and SLIDING_WINDOW has no FALLBACK_PROCESSES.",
    "Set it to the number of processes that serve requests, on all hosts: while Redis is away, "
    "each of them admits its share of a limit. Even 1 turns off this message.",
)
NO_PROXIES = add(
    "I103",
    "The profile {name!r} counts by address, and SLIDING_WINDOW has no TRUSTED_PROXIES.",
    "Behind a proxy, list its address: otherwise all clients have the address of the proxy and "
    "share one limit. If the server listens on a unix socket, add 'unix': otherwise clients have "
    "no address at all. Without a proxy, set it to [] to turn off this message.",
)

# With --deploy: the server. Imported last, so that the catalog has the order of the docs.
from . import server_catalog  # noqa: E402, F401

CATALOG = _ALL
