from django.db import migrations, models


class Migration(migrations.Migration):
    """What is known of a member's launch, and whether its node went away or may forget it."""

    dependencies = [
        ("tasks", "0003_leases_and_secrets"),
    ]

    operations = [
        migrations.RenameField("holding", "lease_boot_id", "boot_id"),
        migrations.AddField(
            model_name="holding",
            name="is_lost",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="holding",
            name="is_forgotten",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="holding",
            name="lock_token",
            field=models.CharField(blank=True, db_default="", default="", max_length=36),
        ),
        migrations.AddField(
            model_name="holding",
            name="launched_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name="holding",
            index=models.Index(
                condition=models.Q(("is_acknowledged", True), ("is_forgotten", False)),
                fields=["node", "id"],
                name="holding_traces",
            ),
        ),
    ]
