"""Forms for tenants; services validate them."""

from typing import Any

from django import forms
from django.contrib.auth.models import Group

from apps.accounts.models import BUILT_IN_GROUPS, Tenant, TenantGroup
from apps.dashboard.forms_base import PageForm
from apps.dashboard.forms_people import DIALOG_ID, GroupsField
from apps.policies.models import Policy


class TenantForm(PageForm):
    """The top of its tree, who administers it, and which groups belong to it."""

    top = forms.ModelChoiceField(
        Policy.objects.none(),
        label="Top policy",
        help_text="The tenant is called as it is. Everything below it belongs to the tenant.",
    )
    admin_group = forms.ModelChoiceField(
        Group.objects.none(),
        label="Administrators",
        help_text="Its members administer the policies below the top, and the people.",
    )
    groups = GroupsField(
        label="Groups",
        help_text="Their people are the tenant's. Groups of its policies must be among them.",
    )

    def __init__(self, *args: Any, tenant: Tenant | None = None, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **given})
        fields: Any = self.fields
        taken = TenantGroup.objects.exclude(tenant=tenant)
        free = Group.objects.exclude(name__in=BUILT_IN_GROUPS).exclude(belongs__in=taken)
        for name in ("admin_group", "groups"):
            fields[name].queryset = free.order_by("name")
        if tenant is None:
            tops = Policy.objects.filter(removed_at__isnull=True, parent=None, tenant=None)
            fields["top"].queryset = tops.order_by("position", "pk")
        else:
            # A tenant keeps its top.
            del fields["top"]
