from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_slidingwindow.conf import conf

DEFAULTS = {
    "CACHE": "default",
    "PROFILES": {},
    "IDENTITIES": {},
    "RULES": [],
    "TRUSTED_PROXIES": [],
    "FORWARDED_HEADER": "x-forwarded-for",
    "IPV6_PREFIX": 64,
    "FALLBACK": "local",
    "FALLBACK_PROCESSES": 1,
    "FALLBACK_MAX_KEYS": 100_000,
    "SHIELD_SECONDS": 1.0,
    "HEADERS": ["draft", "legacy"],
    "HEADERS_PARTITION_KEY": False,
    "PREFIX": "throttle",
    "LATENCY_BUDGET": 0.1,
    "IDENTITY_ERROR": "deny",
    "EXEMPT": [],
    "RESPONSE": None,
    "LOG": True,
    "LOG_DAYS": 30,
    "LOG_CLIENT": False,
    "LOG_IDENTIFIERS": "plain",
    "ENABLED": True,
}
OTHERS = {
    "CACHE": "limits",
    "PROFILES": {"a": {"axis": "ip", "rate": "1/m"}},
    "IDENTITIES": {"tenant": "shop.tenant"},
    "RULES": [{"path": "^/", "profiles": ["a"]}],
    "TRUSTED_PROXIES": ["10.0.0.0/8"],
    "FORWARDED_HEADER": "forwarded",
    "IPV6_PREFIX": 56,
    "FALLBACK": "deny",
    "FALLBACK_PROCESSES": 4,
    "FALLBACK_MAX_KEYS": 7,
    "SHIELD_SECONDS": 0,
    "HEADERS": ["x"],
    "HEADERS_PARTITION_KEY": True,
    "PREFIX": "shop:limits",
    "LATENCY_BUDGET": 0.5,
    "IDENTITY_ERROR": "allow",
    "EXEMPT": ["shop.exempt"],
    "RESPONSE": "shop.response",
    "LOG": False,
    "LOG_DAYS": 7,
    "LOG_CLIENT": True,
    "LOG_IDENTIFIERS": "hash",
    "ENABLED": False,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_setting_has_its_default_and_can_be_set(name: str) -> None:
    with override_settings(SLIDING_WINDOW={}):
        assert getattr(conf, name.lower()) == DEFAULTS[name]
    with override_settings(SLIDING_WINDOW={name: OTHERS[name]}):
        assert getattr(conf, name.lower()) == OTHERS[name]
    with override_settings(SLIDING_WINDOW={}):
        assert getattr(conf, name.lower()) == DEFAULTS[name]


def test_conf_has_the_defaults_when_the_setting_is_missing(settings: Any) -> None:
    del settings.SLIDING_WINDOW
    assert conf.cache == "default"


def test_setting_is_read_once(settings: Any) -> None:
    settings.SLIDING_WINDOW = mine = {"CACHE": "one"}
    assert conf.cache == "one"
    mine["CACHE"] = "two"
    assert conf.cache == "one"
    conf.reset()
    assert conf.cache == "two"


def test_conf_is_not_reset_when_another_setting_changes(settings: Any) -> None:
    settings.SLIDING_WINDOW = mine = {"CACHE": "one"}
    assert conf.cache == "one"
    mine["CACHE"] = "two"
    settings.LANGUAGE_CODE = "de"
    assert conf.cache == "one"


@pytest.mark.parametrize("value", [None, [], "text"])
def test_conf_raises_when_the_setting_is_not_a_dict(settings: Any, value: Any) -> None:
    settings.SLIDING_WINDOW = value
    with pytest.raises(ImproperlyConfigured, match="SLIDING_WINDOW must be a dict"):
        _ = conf.cache


def test_profiles_raises_when_it_is_not_a_dict(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"PROFILES": ["ip_public"]}
    with pytest.raises(ImproperlyConfigured, match="must be a dict, not"):
        _ = conf.profiles


@pytest.mark.parametrize("prefix", ["{shop}", "a{", "a}", "", None, 7])
def test_prefix_raises_when_it_would_break_the_keys(settings: Any, prefix: Any) -> None:
    settings.SLIDING_WINDOW = {"PREFIX": prefix}
    with pytest.raises(ImproperlyConfigured, match="a string without braces"):
        _ = conf.prefix


def test_hash_key_comes_from_the_secret_key_when_it_is_not_set(settings: Any) -> None:
    settings.SECRET_KEY = "one"
    first = conf.hash_key
    settings.SECRET_KEY = "two"
    assert conf.hash_key != first
    assert b"two" in conf.hash_key
    settings.SLIDING_WINDOW = {"HASH_KEY": "text"}
    assert conf.hash_key == b"text"
    settings.SLIDING_WINDOW = {"HASH_KEY": b"bytes"}
    assert conf.hash_key == b"bytes"


def test_forced_values_stay_when_settings_change(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"CACHE": "one"}
    with conf.forced(cache="forced", enabled=False):
        assert (conf.cache, conf.enabled) == ("forced", False)
        settings.SLIDING_WINDOW = {"CACHE": "two", "ENABLED": True}
        assert (conf.cache, conf.enabled) == ("forced", False)
        with conf.forced(cache="inner"):
            assert (conf.cache, conf.enabled) == ("inner", False)
        assert conf.cache == "forced"
    assert (conf.cache, conf.enabled) == ("two", True)


def test_middleware_is_the_setting_of_django(settings: Any) -> None:
    settings.MIDDLEWARE = ["a", "b"]
    assert conf.middleware == ["a", "b"]
