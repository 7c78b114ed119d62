from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("policies", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="draftpool",
            name="preemption",
            field=models.CharField(
                blank=True,
                choices=[
                    ("none", "nobody is preempted"),
                    ("reclaim", "reserved work takes back what others borrowed"),
                    ("priority", "and higher priority within a policy"),
                    ("rank", "and better rank among over-quota work"),
                ],
                db_default="",
                default="",
                help_text="Who may take capacity back here; empty: as in the whole configuration.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="draftstate",
            name="queueing",
            field=models.CharField(
                choices=[
                    ("best_effort", "later tasks may pass one that has to wait"),
                    ("strict", "no task starts before an earlier one of its policy"),
                ],
                db_default="best_effort",
                default="best_effort",
                help_text="Of all policies; a single policy can be set to be strict.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="livestate",
            name="queueing",
            field=models.CharField(
                choices=[
                    ("best_effort", "later tasks may pass one that has to wait"),
                    ("strict", "no task starts before an earlier one of its policy"),
                ],
                db_default="best_effort",
                default="best_effort",
                help_text="Of all policies; a single policy can be set to be strict.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="pool",
            name="preemption",
            field=models.CharField(
                blank=True,
                choices=[
                    ("none", "nobody is preempted"),
                    ("reclaim", "reserved work takes back what others borrowed"),
                    ("priority", "and higher priority within a policy"),
                    ("rank", "and better rank among over-quota work"),
                ],
                db_default="",
                default="",
                help_text="Who may take capacity back here; empty: as in the whole configuration.",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="draftstate",
            name="preemption",
            field=models.CharField(
                choices=[
                    ("none", "nobody is preempted"),
                    ("reclaim", "reserved work takes back what others borrowed"),
                    ("priority", "and higher priority within a policy"),
                    ("rank", "and better rank among over-quota work"),
                ],
                default="reclaim",
                help_text="Who may take capacity back from running work; the last level needs over-quota work to be ordered by policies and priority.",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="livestate",
            name="preemption",
            field=models.CharField(
                choices=[
                    ("none", "nobody is preempted"),
                    ("reclaim", "reserved work takes back what others borrowed"),
                    ("priority", "and higher priority within a policy"),
                    ("rank", "and better rank among over-quota work"),
                ],
                default="reclaim",
                help_text="Who may take capacity back from running work; the last level needs over-quota work to be ordered by policies and priority.",
                max_length=16,
            ),
        ),
    ]
