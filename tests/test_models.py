"""The model of the rejection log and its queries."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections.fields import ExactTextField, text_after
from tests.support.databases import on_every_database
from tests.support.rejection_factories import row


@pytest.mark.django_db
def test_migrations_are_up_to_date() -> None:
    call_command("makemigrations", "django_slidingwindow", "--check", "--dry-run", verbosity=0)


def test_str_has_profile_identifier_minute_and_hits() -> None:
    minute = datetime(2026, 11, 16, 12, 34, tzinfo=timezone.utc)
    with override_settings(TIME_ZONE="Europe/Berlin"):
        assert str(row(minute=minute, hits=7)) == "ip_public 203.0.113.9 2026-11-16 13:34: 7"
        assert str(row(minute=minute, identifier="")) == "ip_public - 2026-11-16 13:34: 1"
    naive = minute.replace(tzinfo=None)  # without USE_TZ
    assert str(row(minute=naive)) == "ip_public 203.0.113.9 2026-11-16 12:34: 1"


@pytest.mark.parametrize(
    ("limit", "window", "policy"),
    [(120, 60.0, "120/60s"), (1, 0.25, "1/0.25s"), (5, 34_560_000.0, "5/34560000s")],
)
def test_policy_is_readable(limit: int, window: float, policy: str) -> None:
    assert row(limit=limit, window=window).policy == policy


def test_policy_of_requests_in_flight_is_readable() -> None:
    assert row(limit=5, window=120.0, algorithm="slots").policy == "5 in flight"
    assert row(limit=5, window=120.0, algorithm="of a later release").policy == "5/120s"


@pytest.mark.parametrize("missing", ["limit", "window"])
def test_policy_is_empty_when_there_is_none(missing: str) -> None:
    assert row(**{missing: None}).policy == ""


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("acme", "acmf"),
        ("", None),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("x\ud7ff", "x\ue000"),
    ],
)
def test_text_after_sorts_after_all_texts_with_the_prefix(prefix: str, after: str | None) -> None:
    assert text_after(prefix) == after


def test_exact_text_field_deconstructs() -> None:
    field = Rejection._meta.get_field("identifier")
    _, path, args, kwargs = field.deconstruct()
    assert path == "django_slidingwindow.rejections.fields.ExactTextField"
    assert ExactTextField(*args, **kwargs).deconstruct()[1:] == (path, args, kwargs)


@on_every_database
@pytest.mark.usefixtures("log_database")
def test_with_prefix_is_case_sensitive() -> None:
    names = ["acme", "acme-2", "acmf", "Acme", "ACME-3", "ac", "acme\u00e9", "acme\U0001f388"]
    Rejection.objects.bulk_create([row(identifier=name) for name in names])

    def found(rows: Any) -> set[str]:
        return set(rows.values_list("identifier", flat=True))

    assert found(Rejection.objects.with_prefix("acme")) == {
        n for n in names if n.startswith("acme")
    }
    assert found(Rejection.objects.with_prefix("A")) == {"Acme", "ACME-3"}
    assert found(Rejection.objects.filter(identifier="acme")) == {"acme"}
    assert found(Rejection.objects.with_prefix("")) == set(names)


@on_every_database
def test_minute_and_digest_are_unique(log_database: str) -> None:
    first = row()
    first.save()
    constraints = connections[log_database].introspection.get_constraints(
        connections[log_database].cursor(), Rejection._meta.db_table
    )
    unique = [c["columns"] for c in constraints.values() if c["unique"] and not c["primary_key"]]
    assert unique == [["minute", "digest"]]


@pytest.mark.django_db
def test_before_returns_the_rows_that_follow_in_the_list() -> None:
    minute = datetime(2026, 11, 16, 12, 34, tzinfo=timezone.utc)
    for back in (0, 1, 1, 1, 2):
        row(minute=minute - timedelta(minutes=back)).save()
    rows = list(Rejection.objects.all())
    for place, one in enumerate(rows):
        assert list(Rejection.objects.before(one.minute, one.pk)) == rows[place + 1 :]
