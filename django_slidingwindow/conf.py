"""The setting SLIDING_WINDOW: one typed property for each key.

No other module of the package reads settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

NAME = "SLIDING_WINDOW"

Value = TypeVar("Value")


class Conf:
    """The settings of the project. A value is read on first access and kept until it changes."""

    _forced: ClassVar[dict[str, Any]] = {}

    @cached_property
    def user(self) -> Mapping[str, Any]:
        """The dict SLIDING_WINDOW as the project wrote it."""
        value = getattr(settings, NAME, {})
        if not isinstance(value, Mapping):
            raise ImproperlyConfigured(f"{NAME} must be a dict, not {type(value).__name__}")
        return value

    @cached_property
    def cache(self) -> str:
        """The django-redis alias that holds the windows."""
        return self._get("CACHE", "default")

    @cached_property
    def transport(self) -> str:
        """How checks reach Redis: "direct", or "client" for django-redis's own client."""
        return self._get("TRANSPORT", "direct")

    @cached_property
    def profiles(self) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._get("PROFILES", {})
        if not isinstance(value, Mapping):
            raise ImproperlyConfigured(f"{NAME}['PROFILES'] must be a dict, not {value!r}")
        return value

    @cached_property
    def identities(self) -> Mapping[str, Any]:
        """Functions or their dotted paths by axis. They take the request and return str or None."""
        return self._get("IDENTITIES", {})

    @cached_property
    def rules(self) -> Sequence[Mapping[str, Any]]:
        return self._get("RULES", [])

    @cached_property
    def trusted_proxies(self) -> Sequence[str]:
        return self._get("TRUSTED_PROXIES", [])

    @cached_property
    def forwarded_header(self) -> str:
        """The header that trusted proxies set: "x-forwarded-for", or "forwarded" (RFC 7239)."""
        return self._get("FORWARDED_HEADER", "x-forwarded-for")

    @cached_property
    def ipv6_prefix(self) -> int:
        return self._get("IPV6_PREFIX", 64)

    @cached_property
    def fallback(self) -> str:
        return self._get("FALLBACK", "local")

    @cached_property
    def fallback_processes(self) -> int:
        return self._get("FALLBACK_PROCESSES", 1)

    @cached_property
    def fallback_max_keys(self) -> int:
        return self._get("FALLBACK_MAX_KEYS", 100_000)

    @cached_property
    def shield_seconds(self) -> float:
        return self._get("SHIELD_SECONDS", 1.0)

    @cached_property
    def headers(self) -> Sequence[str]:
        return self._get("HEADERS", ["draft", "legacy"])

    @cached_property
    def headers_partition_key(self) -> bool:
        """Whether the draft's fields carry `pk`, a keyed hash of the identifier."""
        return self._get("HEADERS_PARTITION_KEY", False)

    @cached_property
    def prefix(self) -> str:
        """The beginning of every key.

        Braces are not allowed: Redis Cluster would take them for the hash tag.
        """
        value = self._get("PREFIX", "throttle")
        if not isinstance(value, str) or not value or set(value) & set("{}"):
            raise ImproperlyConfigured(
                f"{NAME}['PREFIX'] must be a string without braces, not {value!r}"
            )
        return value

    @cached_property
    def hash_key(self) -> bytes:
        """The key with which secrets, such as API keys and session ids, are hashed."""
        value = self.user.get("HASH_KEY")
        if value is None:
            return f"{__package__}:{settings.SECRET_KEY}".encode()
        return value if isinstance(value, bytes) else str(value).encode()

    @cached_property
    def latency_budget(self) -> float:
        """Seconds that one check may add to a request."""
        return self._get("LATENCY_BUDGET", 0.1)

    @cached_property
    def deferred_seconds(self) -> float:
        """Seconds in which charges of deferred profiles are gathered before they are sent."""
        return self._get("DEFERRED_SECONDS", 0.05)

    @cached_property
    def identity_error(self) -> str:
        return self._get("IDENTITY_ERROR", "deny")

    @cached_property
    def exempt(self) -> Sequence[str]:
        return self._get("EXEMPT", [])

    @cached_property
    def response(self) -> Any:
        return self._get("RESPONSE", None)

    @cached_property
    def log(self) -> bool:
        return self._get("LOG", True)

    @cached_property
    def log_days(self) -> int:
        return self._get("LOG_DAYS", 30)

    @cached_property
    def log_client(self) -> bool:
        return self._get("LOG_CLIENT", False)

    @cached_property
    def log_rows_per_minute(self) -> int:
        """New rows that a process starts in a minute; other requests share one row per profile."""
        return self._get("LOG_ROWS_PER_MINUTE", 1_000)

    @cached_property
    def log_identifiers(self) -> str:
        return self._get("LOG_IDENTIFIERS", "plain")

    @cached_property
    def near_share(self) -> float | None:
        """The share of a limit that sends `limit_near` when it is crossed; None or 0 for never."""
        return self._get("NEAR_SHARE", 0.8)

    @cached_property
    def traces(self) -> bool:
        """Whether a check that asks Redis creates an OpenTelemetry span."""
        return self._get("TRACES", False)

    @cached_property
    def overrides_seconds(self) -> float:
        """Seconds until a changed override applies, at most; 0 turns overrides off."""
        return self._get("OVERRIDES_SECONDS", 2.0)

    @cached_property
    def enabled(self) -> bool:
        return self._get("ENABLED", True)

    @property
    def language(self) -> str:
        """Django's LANGUAGE_CODE, which every refusal reads."""
        return settings.LANGUAGE_CODE

    @property
    def allowed_hosts(self) -> Sequence[str]:
        """Django's ALLOWED_HOSTS, which the drill and the load test read."""
        return settings.ALLOWED_HOSTS

    @property
    def middleware(self) -> Sequence[str]:
        """Django's MIDDLEWARE."""
        return settings.MIDDLEWARE

    @property
    def session_engine(self) -> str:
        """Django's SESSION_ENGINE, which the system checks read."""
        return settings.SESSION_ENGINE

    def reset(self) -> None:
        """Forget all values, so that they are read again."""
        vars(self).clear()
        vars(self).update(self._forced)

    @contextmanager
    def forced(self, **values: Any) -> Iterator[None]:
        """Give properties these values inside the block, whatever the settings are or become."""
        before = dict(self._forced)
        self._forced.update(values)
        self.reset()
        try:
            yield
        finally:
            self._forced.clear()
            self._forced.update(before)
            self.reset()

    def _get(self, key: str, default: Value) -> Value:
        value: Value = self.user.get(key, default)
        return value


conf = Conf()


# Functions to call, and the settings for which to call them. `conf.reset` is the first: the others
# may read the new values.
_callbacks: list[tuple[Callable[[], object], frozenset[str]]] = []


def on_change(callback: Callable[[], object], *names: str) -> None:
    """Call a function whenever a test changes SLIDING_WINDOW or one of these settings."""
    _callbacks.append((callback, frozenset((NAME, *names))))


def _call_back(*, setting: str, **kwargs: Any) -> None:
    for callback, names in _callbacks:
        if setting in names:
            callback()


on_change(conf.reset, "SECRET_KEY")
setting_changed.connect(_call_back, dispatch_uid=f"{__name__}.changed")
