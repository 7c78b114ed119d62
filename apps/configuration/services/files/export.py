"""The live configuration as a file."""

from typing import Any

import msgspec
from django.contrib.auth.models import Group
from django.db import transaction

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import live_document
from apps.configuration.services.files.rules import rule_entries
from apps.policies.document import as_data


@transaction.atomic
def configuration_export(*, actor: User) -> tuple[dict[str, Any], int]:
    """The data of the file, and the last revision.

    Policies have no id, so that another installation can read it; pools and profiles keep their
    keys, which nobody else has.
    """
    last = Revision.objects.order_by("-number").values_list("number", flat=True).first()
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
    return data, last or 0
