"""Organisations that share the hardware and see nothing of one another.

A tenant is here as the people that belong to it. What it holds is a tree of policies, each of which
names it (`apps.policies.models.Policy.tenant`); the top of that tree is what it is called by.
"""

from django.contrib.auth.models import Group
from django.db import models


class Tenant(models.Model):
    """Members of `admin_group` administer what is the tenant's, below its top policy."""

    admin_group = models.OneToOneField(Group, on_delete=models.PROTECT, related_name="administers")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"tenant {self.pk}"


class TenantGroup(models.Model):
    """A group that belongs to a tenant, of which it can have one; the administrators' group too."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="belonging")
    group = models.OneToOneField(Group, on_delete=models.CASCADE, related_name="belongs")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.group} of {self.tenant}"
