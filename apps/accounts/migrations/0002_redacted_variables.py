from django.db import migrations, models


class Migration(migrations.Migration):
    """Which variables of a person's tasks are shown to nobody."""

    dependencies = [
        ("accounts", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="user",
            name="redacted_variables",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text=(
                    "Patterns such as WANDB_*: values of such variables of this person's tasks are "
                    "shown to nobody, beside those that the installation hides."
                ),
            ),
        ),
    ]
