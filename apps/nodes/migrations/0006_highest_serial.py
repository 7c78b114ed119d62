from django.db import migrations, models


class Migration(migrations.Migration):
    """What nodes have heard of states of the database beyond the present one."""

    dependencies = [
        ("nodes", "0005_unknown_work"),
    ]

    operations = [
        migrations.AddField(
            model_name="installation",
            name="highest_serial",
            field=models.BigIntegerField(db_default=0, default=0, editable=False),
        ),
    ]
