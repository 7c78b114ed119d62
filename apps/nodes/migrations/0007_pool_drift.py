import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Since when the nodes of a pool have not had what is configured."""

    dependencies = [
        ("policies", "0004_images_and_extras"),
        ("nodes", "0006_highest_serial"),
    ]

    operations = [
        migrations.CreateModel(
            name="PoolDrift",
            fields=[
                (
                    "pool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="drift",
                        serialize=False,
                        to="policies.pool",
                    ),
                ),
                ("since", models.DateTimeField()),
            ],
        ),
    ]
