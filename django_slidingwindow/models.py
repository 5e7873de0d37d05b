"""The models: the logs (who was refused, who was admitted, when and how often), and overrides."""

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

from .guard import overriding
from .policies import SLOTS, Policy
from .rejections.fields import ExactTextField, text_after

# Several models have these. Each lazy text makes a class, which a start pays for; what only the
# form of overrides says stands there.
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
    def beginning(self, identifier: str) -> RejectionQuerySet:
        """Return the rows whose identifier starts with this text. Uses the index."""
        end = text_after(identifier)
        found = self.filter(identifier__gte=identifier)
        return found if end is None else found.filter(identifier__lt=end)

    def before(self, minute: datetime, pk: int) -> RejectionQuerySet:
        """Return the rows that are older than this one: those after it in the default order."""
        # This form, and not an OR of two ranges, lets the database scan one range of the index.
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
        algorithm = SLOTS if self.algorithm == SLOTS else "compact"
        return Policy(limit=self.limit, window=self.window, algorithm=algorithm).label


class Usage(models.Model):
    """The admitted requests of one minute with the same profile, identifier and view.

    Only of profiles with `"log": "all"`. A table of its own, so that the rejection log stays small.
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
    """What they cost together."""

    class Meta:
        default_permissions = ()
        # The first also serves the purge. The others serve the page of a profile and of one
        # identifier; nothing else reads the table.
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
    """One row, which every change of an override replaces in the same transaction.

    Processes poll it to find out whether overrides have changed. A time stamp or a count of the
    overrides would not do: transactions commit in another order than they begin.
    """

    token = models.UUIDField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.token)

    @classmethod
    def renew(cls, using: str) -> None:
        """Replace the token. Other writers wait here until this one's transaction ends."""
        rows, token = cls._default_manager.using(using), uuid.uuid4()
        if not rows.filter(pk=1).update(token=token):
            _row, created = rows.get_or_create(pk=1, defaults={"token": token})
            if not created:
                rows.filter(pk=1).update(token=token)


@contextmanager
def _changing(using: str) -> Iterator[None]:
    """Let other processes notice a change, and this one as soon as it is committed."""
    with transaction.atomic(using=using):
        yield
        OverrideVersion.renew(using)
    if overriding.saved is not None:
        overriding.saved(using)


def _alias(rows: Any) -> str:
    """Return the database that a query set writes to."""
    return str(rows._db or router.db_for_write(Override))


class OverrideQuerySet(models.QuerySet["Override"]):
    def in_force(self) -> OverrideQuerySet:
        """Return the overrides that have not ended."""
        return self.filter(models.Q(until=None) | models.Q(until__gt=timezone.now()))

    def update(self, **values: Any) -> int:
        with _changing(_alias(self)):
            return super().update(**values)

    def delete(self) -> tuple[int, dict[str, int]]:
        with _changing(_alias(self)):
            return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Override], *args: Any, **options: Any) -> list[Override]:
        with _changing(_alias(self)):
            return super().bulk_create(objs, *args, **options)


class Override(models.Model):
    """A limit that an operator has changed: for one identifier of a profile, or for all of them.

    Of several in force the newest one counts, and one for an identifier before one for all.
    """

    profile = models.CharField(_PROFILE, max_length=100)
    identifier = ExactTextField(_IDENTIFIER, max_length=200, blank=True)
    action = models.CharField(
        pgettext_lazy("rate limit", "action"),
        max_length=16,
        choices=[(action, action) for action in overriding.ACTIONS],
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
        """Write the identifier as requests have it; ValidationError for what makes no sense."""
        # Reads profiles and identities, which a start need not load.
        from .overrides.validation import cleaned

        self.identifier, self.limit = cleaned(
            self.profile, self.identifier, self.action, self.limit
        )

    def save_base(self, *args: Any, **options: Any) -> None:
        # Both `save` and the loading of fixtures come here.
        with _changing(options.get("using") or router.db_for_write(Override, instance=self)):
            super().save_base(*args, **options)

    save_base.alters_data = True  # type: ignore[attr-defined]

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        with _changing(options.get("using") or router.db_for_write(Override, instance=self)):
            return super().delete(*args, **options)

    delete.alters_data = True  # type: ignore[attr-defined]

    @property
    def in_force(self) -> bool:
        """Whether it has not ended."""
        return self.until is None or self.until > timezone.now()

    def end(self) -> None:
        """Let it end now. The row stays, so that one can see what was in force."""
        self.until = timezone.now()
        self.save(update_fields=["until"])
