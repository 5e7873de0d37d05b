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
                        help_text="A hash of all values that identify this row, except the minute.",
                    ),
                ),
                ("profile", models.CharField(max_length=100, verbose_name="profile")),
                ("limit", models.PositiveIntegerField(null=True, verbose_name="limit")),
                (
                    "window",
                    models.FloatField(help_text="In seconds.", null=True, verbose_name="window"),
                ),
                ("algorithm", models.CharField(max_length=16, verbose_name="algorithm")),
                ("override", models.CharField(max_length=16, verbose_name="override")),
                ("axis", models.CharField(max_length=100, verbose_name="axis")),
                (
                    "identifier",
                    django_slidingwindow.rejections.fields.ExactTextField(
                        help_text=(
                            "Unprintable characters are written as %xx. "
                            "Empty if the row has no single identifier."
                        ),
                        max_length=200,
                        verbose_name="identifier",
                    ),
                ),
                ("scope", models.CharField(max_length=100, verbose_name="scope")),
                (
                    "view",
                    models.CharField(
                        help_text="The route of the view.", max_length=200, verbose_name="view"
                    ),
                ),
                ("method", models.CharField(max_length=10, verbose_name="method")),
                ("reason", models.CharField(max_length=16, verbose_name="reason")),
                ("source", models.CharField(max_length=16, verbose_name="source")),
                (
                    "hits",
                    models.PositiveBigIntegerField(
                        help_text="The number of refused requests.", verbose_name="hits"
                    ),
                ),
                ("first_at", models.DateTimeField(verbose_name="first refusal")),
                ("last_at", models.DateTimeField(verbose_name="last refusal")),
                (
                    "retry_after",
                    models.FloatField(
                        help_text="In seconds. Empty if waiting does not help.",
                        null=True,
                        verbose_name="longest wait",
                    ),
                ),
                (
                    "client",
                    models.CharField(
                        help_text=(
                            "The most recent client address. Only stored if LOG_CLIENT is on."
                        ),
                        max_length=45,
                        verbose_name="client",
                    ),
                ),
                (
                    "user_agent",
                    models.CharField(
                        help_text="The most recent user agent. Only stored if LOG_CLIENT is on.",
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
        migrations.CreateModel(
            name="Usage",
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
                        help_text="A hash of all values that identify this row, except the minute.",
                    ),
                ),
                ("profile", models.CharField(max_length=100, verbose_name="profile")),
                (
                    "identifier",
                    django_slidingwindow.rejections.fields.ExactTextField(
                        max_length=200, verbose_name="identifier"
                    ),
                ),
                ("others", models.BooleanField(default=False)),
                ("view", models.CharField(max_length=200, verbose_name="view")),
                ("hits", models.PositiveBigIntegerField(verbose_name="hits")),
                ("cost", models.PositiveBigIntegerField()),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["profile", "minute"], name="slidingwindow_usage_profile"),
                    models.Index(
                        fields=["profile", "identifier", "minute"], name="slidingwindow_usage_of"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("minute", "digest"), name="slidingwindow_usage")
                ],
            },
        ),
        migrations.CreateModel(
            name="OverrideVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("token", models.UUIDField()),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            name="Override",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("profile", models.CharField(max_length=100, verbose_name="profile")),
                (
                    "identifier",
                    django_slidingwindow.rejections.fields.ExactTextField(
                        blank=True, max_length=200, verbose_name="identifier"
                    ),
                ),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("limit", "limit"),
                            ("exempt", "exempt"),
                            ("observe", "observe"),
                            ("block", "block"),
                        ],
                        max_length=16,
                        verbose_name="action",
                    ),
                ),
                ("limit", models.CharField(blank=True, max_length=200, verbose_name="limit")),
                ("until", models.DateTimeField(blank=True, null=True, verbose_name="until")),
                ("note", models.CharField(blank=True, max_length=200, verbose_name="note")),
                (
                    "created_by",
                    models.CharField(
                        blank=True, editable=False, max_length=150, verbose_name="created by"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(auto_now_add=True, verbose_name="created"),
                ),
            ],
            options={
                "verbose_name": "override",
                "verbose_name_plural": "overrides",
                "ordering": ("-id",),
                "indexes": [
                    models.Index(fields=["profile", "identifier"], name="slidingwindow_override"),
                    models.Index(fields=["until"], name="slidingwindow_until"),
                ],
            },
        ),
    ]
