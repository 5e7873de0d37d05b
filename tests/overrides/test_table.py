"""The table of overrides is read into a snapshot."""

from __future__ import annotations

import re
import zoneinfo
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import serializers
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_slidingwindow.core.keys import escape, unescape
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.identity import keyed_hash
from django_slidingwindow.models import Override, OverrideVersion
from django_slidingwindow.overrides.table import database, read_snapshot, read_version

pytestmark = pytest.mark.django_db

PROFILES = {
    "one": {"axis": "ip", "rate": "3/m"},
    "key": {"axis": "header:X-API-Key", "rate": "3/m"},
}


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES}


def test_snapshot_has_the_rows_in_force_newest_first() -> None:
    hour = timezone.now() + timedelta(hours=1)
    Override.objects.create(profile="one", identifier="203.0.113.9", action="limit", limit=500)
    Override.objects.create(profile="one", identifier="203.0.113.9", action="block", until=hour)
    Override.objects.create(profile="one", action="observe")
    Override.objects.create(profile="one", action="exempt", until=timezone.now())
    snapshot = read_snapshot(database())
    assert [one.action for one in snapshot["one"]["203.0.113.9"]] == ["block", "limit"]
    block, limit = snapshot["one"]["203.0.113.9"]
    assert block.until == hour.timestamp()
    assert limit.limits == ((500, None),)
    assert [one.action for one in snapshot["one"].everybody] == ["observe"]
    assert snapshot.size == 3


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_snapshot_has_an_override_until_the_last_day_of_time(settings: Any, zone: str) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, zone
    end = datetime(9999, 12, 31, 23, 59, 59)
    Override.objects.create(profile="one", action="block", until=end)
    (block,) = read_snapshot(database())["one"].everybody
    assert block.until == end.replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


def test_snapshot_leaves_out_rows_that_are_not_valid() -> None:
    Override.objects.bulk_create(
        [
            Override(profile="gone", action="block"),
            Override(profile="one", action="destroy"),
            Override(profile="one", action="limit", limit="many"),
        ]
    )
    assert read_snapshot(database()) == {}


def test_snapshot_has_each_identifier_as_written_and_as_in_requests() -> None:
    long = unescape(escape("x" * 300))
    for profile, identifier in (("one", "2001:db8::17"), ("key", "s3cret"), ("one", long)):
        Override.objects.create(profile=profile, identifier=identifier, action="block")
    snapshot = read_snapshot(database())
    assert set(snapshot["one"]) == {"2001:db8::17", "2001:db8::/64", long}
    assert snapshot["one"].shortened
    assert set(snapshot["key"]) == {keyed_hash("s3cret")}
    assert not snapshot["key"].shortened


def test_version_differs_after_every_change() -> None:
    seen = [read_version("default")]
    assert seen == [None]

    def changed() -> None:
        version = read_version("default")
        assert version not in seen
        seen.append(version)

    one = Override.objects.create(profile="one", action="block")
    changed()
    one.end()
    changed()
    Override.objects.bulk_create([Override(profile="one", action="block")] * 1)
    changed()
    Override.objects.update(note="x")
    changed()
    Override.objects.using("default").filter(pk=one.pk).update(note="y")
    changed()
    one.delete()
    changed()
    fixture = serializers.serialize("json", Override.objects.all())
    for loaded in serializers.deserialize("json", fixture):
        loaded.save()
    changed()
    Override.objects.all().delete()
    changed()
    assert OverrideVersion.objects.count() == 1
    assert str(OverrideVersion.objects.get()) == str(seen[-1])


def test_writers_lock_the_version_before_overrides() -> None:
    one = Override.objects.create(profile="one", action="block")
    with CaptureQueriesContext(connection) as queries:
        one.end()
        Override.objects.update(note="x")
        Override.objects.bulk_create([Override(profile="one", action="block")])
        one.delete()
        Override.objects.all().delete()
    changed = re.findall(
        r"(?:UPDATE|INSERT INTO|DELETE FROM) \"django_slidingwindow_(\w+)\"",
        "\n".join(query["sql"] for query in queries),
    )
    assert changed == ["overrideversion", "override"] * 5


class Elsewhere:
    """A router to a database that does not exist."""

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "elsewhere"


@pytest.mark.parametrize(
    ("alias", "options"),
    [(("default",), {}), ((), {"using": "default"})],
    ids=["positional", "keyword"],
)
def test_deletion_is_announced_in_the_database_of_its_alias(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    alias: tuple[str, ...],
    options: dict[str, str],
) -> None:
    one = Override.objects.create(profile="one", action="block")
    version = read_version("default")
    settings.DATABASE_ROUTERS = [Elsewhere()]
    announced: list[str] = []
    monkeypatch.setattr(override_snapshot, "saved", announced.append)
    assert one.delete(*alias, **options)[0] == 1
    assert read_version("default") != version
    assert announced == ["default"]


def test_override_can_be_saved_before_the_app_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(override_snapshot, "saved", None)
    Override.objects.create(profile="one", action="block")
    assert read_version("default") is not None


def test_two_writers_of_the_first_version_both_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    update = type(OverrideVersion.objects.all()).update
    late: list[int] = []

    def updated(rows: Any, **values: Any) -> int:
        if not late:
            late.append(1)
            OverrideVersion.objects.create(pk=1, token="0" * 32)
            return 0
        return update(rows, **values)

    monkeypatch.setattr(type(OverrideVersion.objects.all()), "update", updated)
    Override.objects.create(profile="one", action="block")
    assert read_version("default").int != 0
