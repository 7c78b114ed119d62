from django.db import migrations, models


class Migration(migrations.Migration):
    """Members of a gang wait for one another before they are launched, and have a port to meet."""

    dependencies = [
        ("tasks", "0005_image_of_attempt"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="master_port",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="holding",
            name="ready_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
