from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("policies", "0002_levels_and_queueing"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="policy",
            options={
                "ordering": ["position", "id"],
                "permissions": [
                    ("enqueue_policy", "Can enqueue"),
                    ("manage_policy", "Can manage queues"),
                    ("exceed_limit_policy", "Can exceed the limit"),
                ],
                "verbose_name_plural": "policies",
            },
        ),
    ]
