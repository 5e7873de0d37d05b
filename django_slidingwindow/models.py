"""The models: the rejection log, the usage log, and overrides."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import models, router, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .guard import override_snapshot
from .policies import SLOTS, Policy
from .rejections.fields import ExactTextField, text_after

# Texts that several fields share. The help texts of overrides are in `admin_views/overrides.py`,
# because only their form shows them, and this module is imported at every start.
_PROFILE = pgettext_lazy("rate limit", "profile")
_LIMIT = pgettext_lazy("rate limit", "limit")
_IDENTIFIER = pgettext_lazy("rate limit", "identifier")
_OVERRIDE = pgettext_lazy("rate limit", "override")
_MINUTE = pgettext_lazy("rate limit", "minute")
_VIEW = pgettext_lazy("rate limit", "view")
_HITS = pgettext_lazy("rate limit", "hits")
_DIGEST = _("A hash of all values that identify this row, except the minute.")


def _local_text(minute: datetime) -> str:
    local = timezone.localtime(minute) if timezone.is_aware(minute) else minute
    return f"{local:%Y-%m-%d %H:%M}"


class RejectionQuerySet(models.QuerySet["Rejection"]):
    def with_prefix(self, prefix: str) -> RejectionQuerySet:
        """Return the rows whose identifier starts with this text. Uses the index."""
        end = text_after(prefix)
        found = self.filter(identifier__gte=prefix)
        return found if end is None else found.filter(identifier__lt=end)

    def before(self, minute: datetime, pk: int) -> RejectionQuerySet:
        """Return the rows that follow the row with this minute and key in the default order."""
        # Unlike an OR of two ranges, this condition lets the database scan one range of the index.
        return self.filter(minute__lte=minute).exclude(minute=minute, pk__gte=pk)


class Rejection(models.Model):
    """The refusals of one minute with the same window, view, method, reason and source."""

    minute = models.DateTimeField(_MINUTE)
    digest = models.UUIDField(editable=False, help_text=_DIGEST)
    profile = models.CharField(_PROFILE, max_length=100)
    limit = models.PositiveIntegerField(_LIMIT, null=True)
    window = models.FloatField(
        pgettext_lazy("rate limit", "window"), null=True, help_text=_("In seconds.")
    )
    algorithm = models.CharField(pgettext_lazy("rate limit", "algorithm"), max_length=16)
    override = models.CharField(_OVERRIDE, max_length=16)
    axis = models.CharField(pgettext_lazy("rate limit", "axis"), max_length=100)
    identifier = ExactTextField(
        _IDENTIFIER,
        max_length=200,
        help_text=_(
            "Unprintable characters are written as %xx. Empty if the row has no single identifier."
        ),
    )
    scope = models.CharField(pgettext_lazy("rate limit", "scope"), max_length=100)
    view = models.CharField(_VIEW, max_length=200, help_text=_("The route of the view."))
    method = models.CharField(pgettext_lazy("rate limit", "method"), max_length=10)
    reason = models.CharField(pgettext_lazy("rate limit", "reason"), max_length=16)
    source = models.CharField(pgettext_lazy("rate limit", "source"), max_length=16)
    hits = models.PositiveBigIntegerField(_HITS, help_text=_("The number of refused requests."))
    first_at = models.DateTimeField(_("first refusal"))
    last_at = models.DateTimeField(_("last refusal"))
    retry_after = models.FloatField(
        _("longest wait"),
        null=True,
        help_text=_("In seconds. Empty if waiting does not help."),
    )
    client = models.CharField(
        pgettext_lazy("rate limit", "client"),
        max_length=45,
        help_text=_("The most recent client address. Only stored if LOG_CLIENT is on."),
    )
    user_agent = models.CharField(
        _("user agent"),
        max_length=200,
        help_text=_("The most recent user agent. Only stored if LOG_CLIENT is on."),
    )

    objects = RejectionQuerySet.as_manager()

    class Meta:
        verbose_name = pgettext_lazy("rate limit", "rejection")
        verbose_name_plural = pgettext_lazy("rate limit", "rejections")
        ordering = ("-minute", "-id")
        default_permissions = ("view",)
        permissions = (("unblock", "Can unblock a live key"),)
        constraints = (
            # `minute` comes first, so that new rows go to the end of the index.
            models.UniqueConstraint(fields=("minute", "digest"), name="slidingwindow_rejection"),
        )
        # One index for each filter of the admin. Databases append the primary key, or sort
        # within a minute. In both cases the order of the list comes from the index.
        indexes = (
            models.Index(fields=("minute",), name="slidingwindow_minute"),
            models.Index(fields=("profile", "minute"), name="slidingwindow_profile"),
            models.Index(fields=("axis", "minute"), name="slidingwindow_axis"),
            models.Index(fields=("identifier", "minute"), name="slidingwindow_identifier"),
            models.Index(fields=("reason", "minute"), name="slidingwindow_reason"),
            models.Index(fields=("source", "minute"), name="slidingwindow_source"),
        )

    def __str__(self) -> str:
        return f"{self.profile} {self.identifier or '-'} {_local_text(self.minute)}: {self.hits}"

    @property
    def policy(self) -> str:
        """Return the policy as text, such as "120/60s"; empty if there is none."""
        if self.limit is None or self.window is None:
            return ""
        # Only slots have another label. A later release may have stored an unknown algorithm.
        algorithm = SLOTS if self.algorithm == SLOTS else "compact"
        return Policy(limit=self.limit, window=self.window, algorithm=algorithm).label


class Usage(models.Model):
    """The admitted requests of one minute with the same profile, identifier and view.

    Only profiles with `"log": "all"` have rows. The table is separate from the rejection log, so
    that the rejection log stays small.
    """

    minute = models.DateTimeField(_MINUTE)
    digest = models.UUIDField(editable=False, help_text=_DIGEST)
    profile = models.CharField(_PROFILE, max_length=100)
    identifier = ExactTextField(_IDENTIFIER, max_length=200)
    others = models.BooleanField(default=False)
    """Whether the row collects requests beyond LOG_ROWS_PER_MINUTE, whose identifier is lost."""
    view = models.CharField(_VIEW, max_length=200)
    hits = models.PositiveBigIntegerField(_HITS)
    """The number of admitted requests."""
    cost = models.PositiveBigIntegerField()
    """The total cost of these requests."""

    class Meta:
        default_permissions = ()
        # The constraint also serves the purge. The indexes serve the usage of a profile and the
        # usage of one identifier. There are no other queries.
        constraints = (
            models.UniqueConstraint(fields=("minute", "digest"), name="slidingwindow_usage"),
        )
        indexes = (
            models.Index(fields=("profile", "minute"), name="slidingwindow_usage_profile"),
            models.Index(fields=("profile", "identifier", "minute"), name="slidingwindow_usage_of"),
        )

    def __str__(self) -> str:
        return f"{self.profile} {self.identifier or '-'} {_local_text(self.minute)}: {self.hits}"


class OverrideVersion(models.Model):
    """A single row, whose token every change of an override replaces in the same transaction.

    Processes poll the token to find out whether overrides have changed. A timestamp or a count of
    overrides would miss changes, because transactions do not commit in the order they begin.
    """

    token = models.UUIDField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.token)

    @classmethod
    def renew(cls, using: str) -> None:
        """Replace the token. Other writers wait here until the transaction of this one ends."""
        rows, token = cls._default_manager.using(using), uuid.uuid4()
        if not rows.filter(pk=1).update(token=token):
            _row, created = rows.get_or_create(pk=1, defaults={"token": token})
            if not created:
                rows.filter(pk=1).update(token=token)


@contextmanager
def _announce_change(using: str) -> Iterator[None]:
    """Run a change of overrides in a transaction, and tell all processes about it.

    Other processes notice the new token. This process reads the overrides after the commit.
    """
    with transaction.atomic(using=using):
        # First, because this row is the lock of all writers: they would deadlock if they locked
        # overrides before it.
        OverrideVersion.renew(using)
        yield
    if override_snapshot.saved is not None:
        override_snapshot.saved(using)


def _write_alias(rows: Any) -> str:
    """Return the alias of the database that a query set writes to."""
    return str(rows._db or router.db_for_write(Override))


class OverrideQuerySet(models.QuerySet["Override"]):
    def in_force(self) -> OverrideQuerySet:
        """Return the overrides that have not ended."""
        return self.filter(models.Q(until=None) | models.Q(until__gt=timezone.now()))

    def update(self, **values: Any) -> int:
        with _announce_change(_write_alias(self)):
            return super().update(**values)

    def delete(self) -> tuple[int, dict[str, int]]:
        with _announce_change(_write_alias(self)):
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Override], *args: Any, **options: Any) -> list[Override]:
        with _announce_change(_write_alias(self)):
            return super().bulk_create(objs, *args, **options)


class Override(models.Model):
    """A limit that an operator has changed: for one identifier of a profile, or for all of them.

    If several are in force, those for the identifier come before those for all identifiers, and
    the newest one applies.
    """

    profile = models.CharField(_PROFILE, max_length=100)
    identifier = ExactTextField(_IDENTIFIER, max_length=200, blank=True)
    action = models.CharField(
        pgettext_lazy("rate limit", "action"),
        max_length=16,
        choices=[(action, action) for action in override_snapshot.ACTIONS],
    )
    limit = models.CharField(_LIMIT, max_length=200, blank=True)
    until = models.DateTimeField(pgettext_lazy("rate limit", "until"), null=True, blank=True)
    note = models.CharField(pgettext_lazy("rate limit", "note"), max_length=200, blank=True)
    created_by = models.CharField(_("created by"), max_length=150, blank=True, editable=False)
    created_at = models.DateTimeField(pgettext_lazy("rate limit", "created"), auto_now_add=True)

    objects = OverrideQuerySet.as_manager()

    class Meta:
        verbose_name = _OVERRIDE
        verbose_name_plural = pgettext_lazy("rate limit", "overrides")
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("profile", "identifier"), name="slidingwindow_override"),
            models.Index(fields=("until",), name="slidingwindow_until"),
        )

    def __str__(self) -> str:
        what = f"{self.action} {self.limit}".strip()
        return f"{self.profile} {self.identifier or '*'}: {what}"

    def clean(self) -> None:
        """Bring identifier and limit into their stored form. Raise ValidationError if invalid."""
        # Imported late: it loads profiles and identities, which a start does not need.
        from .overrides.validation import cleaned

        self.identifier, self.limit = cleaned(
            self.profile, self.identifier, self.action, self.limit
        )

    def save_base(self, *args: Any, **options: Any) -> None:
        # `save` calls this with the alias that it has chosen. Django saves overrides of a fixture
        # without either method: the app announces them.
        with _announce_change(options.get("using") or router.db_for_write(Override, instance=self)):
            super().save_base(*args, **options)

    save_base.alters_data = True  # type: ignore[attr-defined]

    def delete(
        self, using: str | None = None, keep_parents: bool = False
    ) -> tuple[int, dict[str, int]]:
        with _announce_change(using or router.db_for_write(Override, instance=self)):
            return super().delete(using, keep_parents)

    delete.alters_data = True  # type: ignore[attr-defined]

    @property
    def in_force(self) -> bool:
        """Whether the override has not ended."""
        return self.until is None or self.until > timezone.now()

    def end(self) -> None:
        """End the override now. The row stays as a record."""
        self.until = timezone.now()
        self.save(update_fields=["until"])
