from django.db import migrations, models


class Migration(migrations.Migration):
    """What nodes run that the database does not know, and what an administrator says of it."""

    dependencies = [
        ("nodes", "0004_leases_and_slices"),
    ]

    operations = [
        migrations.AddField(
            model_name="installation",
            name="restore_confirmed_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="unknown_work",
            field=models.PositiveIntegerField(db_default=0, default=0, editable=False),
        ),
    ]
