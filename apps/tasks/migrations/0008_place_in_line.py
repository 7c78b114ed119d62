"""A place in line beside the time of submission, and the order that the engine really takes."""

from django.db import migrations, models

QUEUED = models.Q(("state", "queued"))


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0007_longer_stop_detail"),
    ]

    operations = [
        migrations.AddField(
            model_name="task",
            name="waiting_since",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.RemoveIndex(model_name="task", name="task_heads"),
        migrations.RemoveIndex(model_name="task", name="task_line"),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=QUEUED,
                fields=["run", "submitted_at", "id", "waiting_since"],
                name="task_heads",
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=QUEUED,
                fields=["queue", "-priority", "is_preemptible", "submitted_at", "id"],
                name="task_line",
            ),
        ),
    ]
