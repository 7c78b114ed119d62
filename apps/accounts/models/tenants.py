"""Organisations that share the hardware and see nothing of one another.

This app holds the people of a tenant. Its resources are a tree of policies, each of which names it
(`apps.policies.models.Policy.tenant`); the tenant has the name of the top policy.
"""

from django.contrib.auth.models import Group
from django.db import models


class Tenant(models.Model):
    """Members of `admin_group` administer the tenant below its top policy."""

    admin_group = models.OneToOneField(Group, on_delete=models.PROTECT, related_name="administers")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"tenant {self.pk}"


class TenantGroup(models.Model):
    """Assigns a group to its only tenant; the administrators' group has a row, too."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="belonging")
    group = models.OneToOneField(Group, on_delete=models.CASCADE, related_name="belongs")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.group} of {self.tenant}"
