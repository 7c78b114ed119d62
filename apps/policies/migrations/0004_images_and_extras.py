from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("policies", "0003_exceed_limit"),
    ]

    operations = [
        migrations.AddField(
            model_name="draftpool",
            name="allowed_images",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Images that may run here, such as registry.example.org/team/*; empty: all.",
            ),
        ),
        migrations.AddField(
            model_name="draftprofile",
            name="extra_permissions",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Beyond the usual: root, capability:NAME, device:/dev/PATH; empty: nothing.",
            ),
        ),
        migrations.AddField(
            model_name="pool",
            name="allowed_images",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Images that may run here, such as registry.example.org/team/*; empty: all.",
            ),
        ),
        migrations.AddField(
            model_name="profile",
            name="extra_permissions",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Beyond the usual: root, capability:NAME, device:/dev/PATH; empty: nothing.",
            ),
        ),
    ]
