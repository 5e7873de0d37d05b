from __future__ import annotations

import hashlib

from django.db import models


def digest(api_key: str) -> str:
    # Keys are stored as a hash. A fast one is enough, because keys are long and random.
    return hashlib.sha256(api_key.encode()).hexdigest()


class Tenant(models.Model):
    """A customer with an API key."""

    class Plan(models.TextChoices):
        FREE = "free"
        PAID = "paid"

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    plan = models.CharField(max_length=10, choices=Plan.choices, default=Plan.FREE)
    key_digest = models.CharField(max_length=64, unique=True)

    # Django REST framework reads this from the authenticated user.
    is_authenticated = True

    def __str__(self) -> str:
        return self.name


class Report(models.Model):
    """An expensive report. A job makes it, and calls an upstream service with a quota."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="reports")
    state = models.CharField(max_length=20, default="waiting")

    def __str__(self) -> str:
        return f"{self.tenant} {self.pk}: {self.state}"
