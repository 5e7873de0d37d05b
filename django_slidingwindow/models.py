"""The model of the rejection log: who was refused, by which policy, when and how often."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .policies import Policy
from .rejections.fields import ExactTextField, text_after


class RejectionQuerySet(models.QuerySet["Rejection"]):
    def beginning(self, identifier: str) -> RejectionQuerySet:
        """Return the rows whose identifier starts with this text. Uses the index."""
        end = text_after(identifier)
        found = self.filter(identifier__gte=identifier)
        return found if end is None else found.filter(identifier__lt=end)

    def before(self, minute: datetime, pk: int) -> RejectionQuerySet:
        """Return the rows that come after this one in the default order."""
        # This form, and not an OR of two ranges, lets the database scan one range of the index.
        return self.filter(minute__lte=minute).exclude(minute=minute, pk__gte=pk)


class Rejection(models.Model):
    """The refusals of one minute with the same window, view, method, reason and source."""

    minute = models.DateTimeField(_("minute"))
    digest = models.UUIDField(
        editable=False,
        help_text=_("A hash of all, but the minute, that sets this row apart."),
    )
    profile = models.CharField(_("profile"), max_length=100)
    limit = models.PositiveIntegerField(_("limit"), null=True)
    window = models.FloatField(_("window"), null=True, help_text=_("Seconds."))
    algorithm = models.CharField(_("algorithm"), max_length=16)
    axis = models.CharField(_("axis"), max_length=100)
    identifier = ExactTextField(
        _("identifier"),
        max_length=200,
        help_text=_("The unprintable stands as %xx; empty if nobody was counted."),
    )
    scope = models.CharField(_("scope"), max_length=100)
    view = models.CharField(_("view"), max_length=200, help_text=_("The route."))
    method = models.CharField(_("method"), max_length=10)
    reason = models.CharField(_("reason"), max_length=16)
    source = models.CharField(_("source"), max_length=16)
    hits = models.PositiveBigIntegerField(_("hits"), help_text=_("Requests refused."))
    first_at = models.DateTimeField(_("first"))
    last_at = models.DateTimeField(_("last"))
    retry_after = models.FloatField(
        _("longest wait"),
        null=True,
        help_text=_("Seconds; empty if waiting could not help."),
    )
    client = models.CharField(
        _("client"), max_length=45, help_text=_("The last address; only with LOG_CLIENT.")
    )
    user_agent = models.CharField(
        _("user agent"), max_length=200, help_text=_("The last one; only with LOG_CLIENT.")
    )

    objects = RejectionQuerySet.as_manager()

    class Meta:
        verbose_name = _("rejection")
        verbose_name_plural = _("rejections")
        ordering = ("-minute", "-id")
        default_permissions = ("view",)
        permissions = (("unblock", _("Can unblock a live key")),)
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
        minute = timezone.localtime(self.minute) if timezone.is_aware(self.minute) else self.minute
        return f"{self.profile} {self.identifier or '-'} {minute:%Y-%m-%d %H:%M}: {self.hits}"

    @property
    def policy(self) -> str:
        """Return the policy as text, such as "120/60s"; empty if there is none."""
        if self.limit is None or self.window is None:
            return ""
        return Policy(limit=self.limit, window=self.window).label
