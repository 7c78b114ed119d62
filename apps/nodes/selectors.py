"""What a person may see of nodes and volumes."""

from django.db.models import QuerySet

from apps.accounts.selectors import Person, is_admin
from apps.nodes.models import Device, Node, Volume


def nodes_visible_to(user: Person) -> QuerySet[Node]:
    """Nodes are for administrators: they tell of pools, addresses and other people's work."""
    live = Node.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.none()


def devices_visible_to(user: Person) -> QuerySet[Device]:
    """Devices of the nodes one sees."""
    return Device.objects.filter(node__in=nodes_visible_to(user))


def volumes_visible_to(user: Person) -> QuerySet[Volume]:
    """Volumes are for administrators until rights on single ones exist."""
    live = Volume.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.none()
