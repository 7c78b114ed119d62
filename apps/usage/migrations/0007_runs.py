"""Remembers the last run, and from when on an installation that has sums has them of waits."""

from typing import Any

from django.db import migrations, models
from django.utils import timezone


def _begin(apps: Any, _editor: Any) -> None:
    now = timezone.now()
    has_sums = apps.get_model("usage", "PolicyHour").objects.exists()
    run = apps.get_model("usage", "UsageRun")
    run.objects.create(id=1, at=now, demand_since=now if has_sums else None)


class Migration(migrations.Migration):
    dependencies = [("usage", "0006_demand")]

    operations = [
        migrations.CreateModel(
            name="UsageRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("demand_since", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="usage_run_is_one_row"
                    )
                ],
            },
        ),
        migrations.RunPython(_begin, migrations.RunPython.noop),
    ]
