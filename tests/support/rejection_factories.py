"""Factories of verdicts, decisions, requests and rows of the rejection log."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.test import RequestFactory
from django.utils import timezone

from django_slidingwindow import decisions
from django_slidingwindow.core.keys import make_key
from django_slidingwindow.decisions import Decision, Verdict
from django_slidingwindow.models import Rejection
from django_slidingwindow.policies import Policy

POLICY = Policy(limit=5, window=60)


def verdict(identifier: str = "203.0.113.9", **values: Any) -> Verdict:
    """Return a refusal by one policy of the profile `login`, which limits addresses."""
    profile = values.get("profile", "login")
    policy = values.get("policy", POLICY)
    fields: dict[str, Any] = {
        "profile": profile,
        "policy": policy,
        "key": make_key("throttle", values.pop("axis", "ip"), identifier, profile, policy),
        "allowed": False,
        "observed": False,
        "limit": policy.limit,
        "remaining": 0,
        "retry_after": 12.5,
        "reset_after": 12.5,
    }
    return Verdict(**{**fields, **values})


def refusal(*verdicts: Verdict, **values: Any) -> Decision:
    """Return a refusing decision with these verdicts. Its fields come from the first one."""
    given = verdicts or (verdict(),)
    fields: dict[str, Any] = {
        "allowed": False,
        "profile": given[0].profile,
        "policy": given[0].policy,
        "limit": given[0].limit,
        "remaining": given[0].remaining,
        "retry_after": given[0].retry_after,
        "reset_after": given[0].reset_after,
        "reason": decisions.LIMIT,
        "source": decisions.REDIS,
        "verdicts": given,
    }
    return Decision(**{**fields, **values})


def request(method: str = "GET", path: str = "/", **meta: Any) -> Any:
    return RequestFactory().generic(method, path, **meta)


def row(**values: Any) -> Rejection:
    """Return an unsaved row of the rejection log."""
    minute: datetime = values.pop("minute", None) or timezone.now().replace(second=0, microsecond=0)
    fields: dict[str, Any] = {
        "minute": minute,
        "digest": uuid.uuid4(),
        "profile": "ip_public",
        "limit": 120,
        "window": 60.0,
        "algorithm": "compact",
        "axis": "ip",
        "identifier": "203.0.113.9",
        "scope": "ip_public",
        "view": "api/orders/",
        "method": "GET",
        "reason": decisions.LIMIT,
        "source": decisions.REDIS,
        "hits": 1,
        "first_at": minute,
        "last_at": minute + timedelta(seconds=59),
        "retry_after": 12.5,
    }
    return Rejection(**{**fields, **values})
