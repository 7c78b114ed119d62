"""Groups of a configuration file: their names and descriptions, not their members."""

from collections.abc import Sequence

from django.contrib.auth.models import Group

from apps.accounts.models import User
from apps.accounts.services.groups import group_save
from apps.configuration.services.files.places import at
from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean
from apps.policies.document import DocumentChange, GroupEntry


def groups_apply(actor: User, entries: Sequence[GroupEntry]) -> list[DocumentChange]:
    """Create missing groups, and set the descriptions that the file has."""
    changes = []
    names = [entry.name.strip() for entry in entries]
    known = {one.name: one for one in Group.objects.filter(name__in=names).select_related("info")}
    for index, (name, entry) in enumerate(zip(names, entries, strict=True)):
        group = known.get(name)
        old = group.info.description if group is not None and hasattr(group, "info") else ""
        new = old if entry.description is None else entry.description
        if group is not None and new == old:
            continue
        with at(f"groups[{index}]"):
            known[name] = group_save(actor=actor, group=group or Group(name=name), description=new)
        if group is None:
            changes.append(DocumentChange(kind="groups", name=name, what="added"))
            continue
        change = DocumentChange(
            kind="groups", name=name, what="changed", field="description", before=old, after=new
        )
        changes.append(change)
    return changes


def group_named(name: str) -> Group:
    """The group of this name.

    Raises:
        BadInput: there is none; with a suggestion.
    """
    group = Group.objects.filter(name=name).first()
    if group is None:
        hint = did_you_mean(name, Group.objects.values_list("name", flat=True))
        problem = f"there is no group {name!r}{hint}"
        raise BadInput(f"group: {problem}.", fields={"group": problem})
    return group
