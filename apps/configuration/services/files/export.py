"""The live configuration as a file."""

from hashlib import sha256
from typing import Any

import msgspec
from django.contrib.auth.models import Group
from django.db import transaction

from apps.accounts.models import User
from apps.configuration.selectors import last_revision, live_document
from apps.configuration.services.files.rules import rule_entries
from apps.policies.document import as_data

DIGEST_CHARS = 32


@transaction.atomic
def configuration_export(*, actor: User) -> tuple[dict[str, Any], int]:
    """The data of the file, and the last revision.

    Policies have no id, so that another installation can read it; pools and profiles keep their
    keys, which nobody else has.
    """
    return _data(actor), last_revision()


@transaction.atomic
def configuration_version(actor: User) -> str:
    """A digest of everything that a file can change; no revision has groups and access rules."""
    return sha256(msgspec.json.encode(_data(actor), order="sorted")).hexdigest()[:DIGEST_CHARS]


def _data(actor: User) -> dict[str, Any]:
    data = as_data(live_document())
    for policy in data["policies"]:
        del policy["id"]
    rows = Group.objects.exclude(info__is_built_in=True).select_related("info").order_by("name")
    data["groups"] = [
        {"name": row.name, "description": row.info.description if hasattr(row, "info") else ""}
        for row in rows
    ]
    data["rules"] = [
        msgspec.json.decode(msgspec.json.encode(entry)) for entry in rule_entries(actor)
    ]
    return data
