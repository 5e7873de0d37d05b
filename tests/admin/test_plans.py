"""The admin with a large log: few queries, each uses an index, and none counts rows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.support.large_log import Watched, fill

# The more rows there are, the sooner a planner chooses an index.
MANY = {"postgresql": 200_000, "sqlite": 40_000, "mariadb": 40_000}


def queries() -> dict[str, str]:
    now = timezone.localtime()
    yesterday = (now - timedelta(days=1)).date().isoformat()
    return {
        "all": "",
        "a profile": "?profile=login",
        "an axis": "?axis=tenant",
        "a common reason": "?reason=limit",
        "a rare reason": "?reason=deny",
        "a source without rows": "?source=allow",
        "a rare source": "?source=local",
        "the past day": "?when=24h",
        "the past week": "?when=7d&profile=login",
        "a day": f"?when={yesterday}",
        "an hour": f"?when={yesterday}T13",
        "an identifier": "?q=10.7.507",
        "a prefix": "?q=10.99.9*",
        "an identifier without rows": "?q=nobody",
        "all at once": "?q=10.7.507&profile=tenant_paid&axis=tenant&reason=limit&when=7d",
        "an old page": f"?before={round((now - timedelta(days=20)).timestamp())}000000.{10**9}",
        "an order without an index": "?o=-8.1",
    }


@pytest.mark.parametrize(
    ("log_database", "rows"),
    MANY.items(),
    indirect=["log_database"],
)
@pytest.mark.django_db
def test_pages_use_indexes_when_the_log_is_large(
    admin_user: User, client: Client, log_database: str, rows: int
) -> None:
    fill(log_database, rows)
    client.force_login(admin_user)
    address = reverse("admin:django_slidingwindow_rejection_changelist")
    watched = Watched(log_database)
    for name, query in queries().items():
        with watched.page():
            response = client.get(address + query)
        assert response.status_code == 200, name
    with watched.page():
        response = client.get(reverse("admin:django_slidingwindow_rejection_profiles"))
    assert response.status_code == 200
    key = "?key=throttle:tenant:{10.7.507}:shared:c60"
    with watched.page():
        response = client.get(reverse("admin:django_slidingwindow_rejection_key") + key)
    assert response.status_code == 200
    with watched.page():
        lines = client.get(reverse("admin:django_slidingwindow_rejection_export") + "?q=10.7.507")
        assert lines.getvalue().count(b"\n") == rows // 1000 + 1
