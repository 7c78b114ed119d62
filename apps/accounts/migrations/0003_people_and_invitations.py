import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """People who are invited, were here, and may not come in any more."""

    dependencies = [
        ("accounts", "0002_redacted_variables"),
    ]

    operations = [
        migrations.AddField(
            model_name="user",
            name="is_pending",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Invited, and never signed in.",
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="keeps_waiting_tasks",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Deactivated, and an administrator left the waiting tasks in line.",
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="last_active_at",
            field=models.DateTimeField(
                blank=True, editable=False, help_text="To the minute.", null=True
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="session_nonce",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Every session is bound to it: another one ends them all.",
                max_length=32,
            ),
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("token_hash", models.CharField(editable=False, max_length=64, unique=True)),
                (
                    "asks_name",
                    models.BooleanField(
                        default=False, help_text="No user name was given: the person chooses one."
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                (
                    "mail_state",
                    models.CharField(
                        choices=[
                            ("none", "no mail"),
                            ("waiting", "being sent"),
                            ("sent", "sent"),
                            ("failed", "not sent"),
                        ],
                        default="none",
                        editable=False,
                        max_length=8,
                    ),
                ),
                ("mail_detail", models.CharField(blank=True, editable=False, max_length=500)),
                ("mail_tried_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("sealed_link", models.TextField(blank=True, editable=False)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitation",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
    ]
