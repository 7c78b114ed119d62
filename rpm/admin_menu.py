"""The side bar of the admin site: a setting of unfold, the library that draws it."""

from typing import Any

from django.urls import reverse_lazy


def admin_link(title: str, icon: str, model: str, *, is_for_all: bool = False) -> dict[str, Any]:
    """One line of the admin site's side bar; queue administrators see queues only."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{model}_changelist"),
        "permission": "rpm.admin.may_enter" if is_for_all else "rpm.admin.administers",
    }


# In order of use: what the hardware is, who may use it, who they are, what happened.
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "RPM",
    "SITE_HEADER": "RPM administration",
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "SIDEBAR": {
        "show_search": True,
        "navigation": [
            {
                "title": "Draft",
                "items": [
                    admin_link("Pools", "dns", "policies_draftpool"),
                    admin_link("Profiles", "deployed_code", "policies_draftprofile"),
                    admin_link("Settings and provisioning", "tune", "policies_draftstate"),
                ],
            },
            {
                "title": "Live",
                "separator": True,
                "items": [
                    admin_link("Policies", "policy", "policies_policy"),
                    admin_link("Queues", "queue", "policies_queue", is_for_all=True),
                    admin_link("Pools", "dns", "policies_pool"),
                    admin_link("Profiles", "deployed_code", "policies_profile"),
                    admin_link("Revisions", "history", "configuration_revision"),
                ],
            },
            {
                "title": "Machines",
                "separator": True,
                "items": [
                    admin_link("Nodes", "memory", "nodes_node"),
                    admin_link("Volumes", "hard_drive", "nodes_volume"),
                    admin_link("Installation", "settings", "nodes_installation"),
                ],
            },
            {
                "title": "People",
                "separator": True,
                "items": [
                    admin_link("Users", "person", "accounts_user"),
                    admin_link("Groups", "group", "auth_group"),
                    admin_link("Credentials", "key", "accounts_credential"),
                    admin_link("Registries", "inventory_2", "policies_registrycredential"),
                    admin_link("Tenants", "apartment", "accounts_tenant"),
                    admin_link("Identity providers", "badge", "accounts_identityprovider"),
                    admin_link("Log-in rules", "login", "accounts_loginrules"),
                    admin_link("Vaults", "lock", "vaults_vault"),
                ],
            },
            {
                "title": "Access rules",
                "separator": True,
                "items": [
                    admin_link("On policies, people", "rule", "policies_policyuserpermission"),
                    admin_link("On policies, groups", "rule", "policies_policygrouppermission"),
                    admin_link("On queues, people", "rule", "policies_queueuserpermission"),
                    admin_link("On queues, groups", "rule", "policies_queuegrouppermission"),
                    admin_link("On vaults, people", "rule", "vaults_vaultuserpermission"),
                    admin_link("On vaults, groups", "rule", "vaults_vaultgrouppermission"),
                ],
            },
            {
                "title": "What happened",
                "separator": True,
                "items": [
                    admin_link("Tasks", "task_alt", "tasks_task"),
                    admin_link("Attempts", "repeat", "tasks_attempt"),
                    admin_link("Events", "receipt_long", "events_event"),
                    admin_link("Passes", "autorenew", "allocation_passrecord"),
                    admin_link("Audit log", "fact_check", "events_auditentry"),
                    admin_link("Rates", "payments", "usage_rate"),
                    admin_link("Notices", "notifications", "notices_notice"),
                    admin_link("Rules of notices", "rule", "notices_noticerule"),
                    admin_link("E-mail of notices", "mail", "notices_noticesettings"),
                ],
            },
        ],
    },
}
