from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0002_passes_by_time"),
    ]

    operations = [
        migrations.AddField(
            model_name="passrecord",
            name="moved",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
