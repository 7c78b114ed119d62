from django.db import migrations, models


class Migration(migrations.Migration):
    """Exactly which image an attempt runs."""

    dependencies = [
        ("tasks", "0004_launches"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="image_digest",
            field=models.CharField(blank=True, db_default="", default="", max_length=71),
        ),
        migrations.AddField(
            model_name="attempt",
            name="image_id",
            field=models.CharField(blank=True, db_default="", default="", max_length=71),
        ),
    ]
