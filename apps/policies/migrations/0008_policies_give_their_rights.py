from typing import Any

from django.db import migrations

GIVEN = ("view_policy", "enqueue_policy")


def forwards(apps: Any, _editor: Any) -> None:
    """What policies gave to their groups queue by queue, each gives once, on itself."""
    permissions = apps.get_model("auth", "Permission").objects.filter(
        content_type__app_label="policies", codename__in=GIVEN
    )
    rights = list(permissions.values_list("pk", flat=True))
    grants = apps.get_model("policies", "PolicyGroupPermission").objects
    live = apps.get_model("policies", "Policy").objects.filter(removed_at__isnull=True)
    grants.bulk_create(
        (
            grants.model(
                content_object_id=policy, group_id=group, permission_id=right, source="policy"
            )
            for policy, group in live.values_list("pk", "group_id")
            for right in rights
        ),
        ignore_conflicts=True,
    )
    apps.get_model("policies", "QueueGroupPermission").objects.filter(source="policy").delete()


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("policies", "0007_narrowed_policies"),
    ]

    operations = [migrations.RunPython(forwards, migrations.RunPython.noop)]
