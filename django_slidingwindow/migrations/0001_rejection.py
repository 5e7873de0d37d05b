from django.db import migrations, models

import django_slidingwindow.rejections.fields


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Rejection",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minute", models.DateTimeField(verbose_name="minute")),
                (
                    "digest",
                    models.UUIDField(
                        editable=False,
                        help_text="A hash of all, but the minute, that sets this row apart.",
                    ),
                ),
                ("profile", models.CharField(max_length=100, verbose_name="profile")),
                ("limit", models.PositiveIntegerField(null=True, verbose_name="limit")),
                (
                    "window",
                    models.FloatField(help_text="Seconds.", null=True, verbose_name="window"),
                ),
                ("algorithm", models.CharField(max_length=16, verbose_name="algorithm")),
                ("axis", models.CharField(max_length=100, verbose_name="axis")),
                (
                    "identifier",
                    django_slidingwindow.rejections.fields.ExactTextField(
                        help_text="The unprintable stands as %xx; empty if nobody was counted.",
                        max_length=200,
                        verbose_name="identifier",
                    ),
                ),
                ("scope", models.CharField(max_length=100, verbose_name="scope")),
                (
                    "view",
                    models.CharField(help_text="The route.", max_length=200, verbose_name="view"),
                ),
                ("method", models.CharField(max_length=10, verbose_name="method")),
                ("reason", models.CharField(max_length=16, verbose_name="reason")),
                ("source", models.CharField(max_length=16, verbose_name="source")),
                (
                    "hits",
                    models.PositiveBigIntegerField(
                        help_text="Requests refused.", verbose_name="hits"
                    ),
                ),
                ("first_at", models.DateTimeField(verbose_name="first")),
                ("last_at", models.DateTimeField(verbose_name="last")),
                (
                    "retry_after",
                    models.FloatField(
                        help_text="Seconds; empty if waiting could not help.",
                        null=True,
                        verbose_name="longest wait",
                    ),
                ),
                (
                    "client",
                    models.CharField(
                        help_text="The last address; only with LOG_CLIENT.",
                        max_length=45,
                        verbose_name="client",
                    ),
                ),
                (
                    "user_agent",
                    models.CharField(
                        help_text="The last one; only with LOG_CLIENT.",
                        max_length=200,
                        verbose_name="user agent",
                    ),
                ),
            ],
            options={
                "verbose_name": "rejection",
                "verbose_name_plural": "rejections",
                "ordering": ("-minute", "-id"),
                "permissions": (("unblock", "Can unblock a live key"),),
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["minute"], name="slidingwindow_minute"),
                    models.Index(fields=["profile", "minute"], name="slidingwindow_profile"),
                    models.Index(fields=["axis", "minute"], name="slidingwindow_axis"),
                    models.Index(fields=["identifier", "minute"], name="slidingwindow_identifier"),
                    models.Index(fields=["reason", "minute"], name="slidingwindow_reason"),
                    models.Index(fields=["source", "minute"], name="slidingwindow_source"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("minute", "digest"), name="slidingwindow_rejection"
                    )
                ],
            },
        ),
    ]
