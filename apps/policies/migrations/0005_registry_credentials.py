import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """What groups fetch private images with, sealed."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("policies", "0004_images_and_extras"),
    ]

    operations = [
        migrations.CreateModel(
            name="RegistryCredential",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "registry",
                    models.CharField(
                        help_text="The host, with its port if it has one, that images are fetched from.",
                        max_length=262,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^(?=localhost\\Z|[^:]*[.]|.*:)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*(?::[0-9]{1,5})?\\Z",
                                "Use a host such as registry.example.org or localhost:5000.",
                            )
                        ],
                    ),
                ),
                ("username", models.CharField(max_length=255)),
                ("sealed_password", models.TextField(editable=False)),
                ("version", models.PositiveIntegerField(default=1, editable=False)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="registry_credentials",
                        to="auth.group",
                    ),
                ),
            ],
            options={
                "ordering": ["registry", "group__name", "id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("group", "registry"),
                        name="registry_credential_once_per_group",
                        violation_error_message="The group has credentials for this registry.",
                    )
                ],
            },
        ),
    ]
