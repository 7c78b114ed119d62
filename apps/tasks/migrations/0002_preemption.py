import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="checkpointed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="attempt",
            name="is_preempted",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="attempt",
            name="moves_to",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="attempt",
            name="stops_for",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="victims",
                to="tasks.attempt",
            ),
        ),
        migrations.AddField(
            model_name="holding",
            name="is_stop_asked",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
