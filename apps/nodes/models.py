"""Machines with their devices, and the volumes that lie on them with their permissions."""

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from apps.accounts.models.grants import GrantOrigin
from apps.core.fields import QuantitiesField
from apps.core.ids import new_installation_key
from apps.core.models import Pausable, Removable, unique_name
from apps.policies.models import Pool


class Installation(models.Model):
    """One row: the id that names and labels on all nodes carry."""

    key = models.CharField(max_length=32, default=new_installation_key, editable=False)
    # Since when this database may be older than what nodes run: a backup was restored, and no
    # administrator has looked yet. Nothing unknown is killed meanwhile.
    restored_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Since when an administrator says that this database is the right one: what it does not know is
    # ended, and once no node shows any of that, passes go on.
    restore_confirmed_at = models.DateTimeField(null=True, blank=True, editable=False)
    # The highest serial that a node reported beyond those of this database.
    highest_serial = models.BigIntegerField(default=0, db_default=0, editable=False)
    # Until then every lease is granted: the control plane will be away for planned work.
    maintenance_until = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="installation_is_one_row"),
        ]

    def __str__(self) -> str:
        return self.key


class Transport(models.TextChoices):
    SSH = "ssh", "SSH"
    LOCAL = "local", "this machine"


class Runtime(models.TextChoices):
    PODMAN = "podman", "podman"
    DOCKER = "docker", "docker"
    PROCESS = "process", "plain processes, without isolation"


class NodeState(models.TextChoices):
    NEW = "new", "new"
    HEALTHY = "healthy", "healthy"
    SUSPECT = "suspect", "suspect"
    REFUSED = "refused", "refused"


class Node(Removable, Pausable):
    """A machine that runs tasks of one pool.

    `capacity` is what it may give out: what it reported last, unless an administrator set less.
    `served_by` and `served_until` say which process holds its connection.
    """

    name = models.CharField(max_length=120)
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="nodes"
    )
    transport = models.CharField(max_length=8, choices=Transport.choices, default=Transport.SSH)
    address = models.CharField(max_length=255, blank=True)
    port = models.PositiveIntegerField(
        default=22, validators=[MinValueValidator(1), MaxValueValidator(65535)]
    )
    user = models.CharField(max_length=64, blank=True)
    key_path = models.CharField(
        max_length=500, blank=True, help_text="The private key of this node, on this machine."
    )
    host_key = models.TextField(
        blank=True, help_text="The pinned host key; another one is refused."
    )
    state_dir = models.CharField(
        max_length=500, blank=True, help_text="Where the helper keeps its files; empty: default."
    )
    helper_home = models.CharField(max_length=500, blank=True, editable=False)
    # Made by the helper in its folder: another one there is another machine, or one set up again.
    identity = models.CharField(
        max_length=64, blank=True, default="", db_default="", editable=False
    )
    environment = models.JSONField(
        default=dict,
        blank=True,
        help_text="Variables for podman or docker on this node, such as CONTAINERS_CONF.",
    )
    runtime = models.CharField(max_length=8, choices=Runtime.choices, default=Runtime.PODMAN)
    allows_process = models.BooleanField(
        default=False, help_text="Tasks may run as plain processes here, without isolation."
    )
    is_simulated = models.BooleanField(
        default=False, help_text="Its devices are made up, for trying out."
    )
    labels = models.JSONField(default=dict, blank=True)

    state = models.CharField(max_length=8, choices=NodeState.choices, default=NodeState.NEW)
    state_detail = models.CharField(max_length=1000, blank=True)
    is_draining = models.BooleanField(
        default=False, help_text="Finishes what it runs and takes nothing new."
    )
    capacity = QuantitiesField(editable=False)
    capacity_cap = QuantitiesField(
        help_text="At most so much of the node is given out; empty: all that it reports."
    )
    gpu_model = models.CharField(max_length=120, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    # The node's boot clock when it last answered. It is later than that by now: what is left of a
    # lease on that clock is at most what was left then.
    clock_uptime_s = models.FloatField(default=0, db_default=0.0, editable=False)
    # An administrator says that the machine is off since then: nothing can be running there.
    off_at = models.DateTimeField(null=True, blank=True, editable=False)
    # An administrator wants it removed: its work is stopped, and it goes when nothing is left.
    removal_asked_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Members under our name that the node last reported and the database has never heard of.
    unknown_work = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    # Since when it has reported a serial that this installation did not sign; until dismissed.
    serial_refused_at = models.DateTimeField(null=True, blank=True, editable=False)
    report = models.JSONField(default=dict, blank=True, editable=False)
    # Containers that the node failed to start in a row, and its runtime's words of the last one.
    preflight_failures = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    preflight_detail = models.CharField(
        max_length=1000, blank=True, default="", db_default="", editable=False
    )
    last_seen_at = models.DateTimeField(null=True, blank=True)
    # Up to when samples of how its GPUs are used stand for the time that has passed.
    sampled_at = models.DateTimeField(null=True, blank=True, editable=False)
    missed_syncs = models.PositiveIntegerField(default=0)
    served_by = models.CharField(max_length=64, blank=True, editable=False)
    served_until = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [unique_name("node", removable=True)]

    def __str__(self) -> str:
        return self.name

    @property
    def preflight_problem(self) -> str:
        """Why it started nothing of its own when it was tried last; empty where it did."""
        return self.preflight_detail if self.preflight_failures else ""

    def clean(self) -> None:
        problem = 'must be an object of texts, such as {"rack": "4"}'
        for name in ("labels", "environment"):
            given = getattr(self, name)
            if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
                raise ValidationError({name: problem})


# Indices from here on are of devices whose place another one has taken.
RETIRED_INDEX = 1_000_000


class DeviceState(models.TextChoices):
    HEALTHY = "healthy", "healthy"
    MISSING = "missing", "missing"
    OCCUPIED = "occupied", "in use by a process that is not ours"


class Device(models.Model):
    """One GPU of a node, known by its UUID."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    index = models.PositiveIntegerField()
    uuid = models.CharField(max_length=120)
    model = models.CharField(max_length=120, blank=True)
    memory_mb = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=8, choices=DeviceState.choices, default=DeviceState.HEALTHY)
    is_simulated = models.BooleanField(default=False)
    # The name by which a container runtime hands the device over; empty when there is none.
    cdi = models.CharField(max_length=200, blank=True)
    # The GPU that this one is a slice of (MIG); empty for a whole GPU.
    parent_uuid = models.CharField(max_length=120, blank=True, default="", db_default="")
    first_seen_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["node_id", "index"]
        constraints = [
            models.UniqueConstraint(fields=["node", "index"], name="device_index_once"),
            models.UniqueConstraint(fields=["node", "uuid"], name="device_uuid_once"),
        ]

    def __str__(self) -> str:
        return f"{self.model or 'GPU'} {self.index}"


class PoolDrift(models.Model):
    """When the nodes of a pool stopped having what is configured; without a row they have it.

    Kept so that it is recorded once when it begins and once when it ends.
    """

    pool = models.OneToOneField(
        Pool, primary_key=True, on_delete=models.CASCADE, related_name="drift"
    )
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.pool} since {self.since}"


class ServingProcess(models.Model):
    """A process that serves nodes, with or without any now.

    Args:
        token: its name, as `Node.served_by` holds it.
        alive_until: by the clock of the database; it moves this ahead every few seconds.
    """

    token = models.CharField(max_length=36, primary_key=True)
    alive_until = models.DateTimeField()

    def __str__(self) -> str:
        return self.token


class VolumeScope(models.TextChoices):
    EVERYWHERE = "everywhere", "the same on all nodes"
    POOL = "pool", "the same on the nodes of a pool"
    NODE = "node", "its own on each node"


class Volume(Removable):
    """A path on the nodes that tasks mount by its name."""

    name = models.CharField(max_length=63)
    description = models.TextField(blank=True)
    path = models.CharField(max_length=500)
    is_read_only = models.BooleanField(default=False)
    scope = models.CharField(
        max_length=10, choices=VolumeScope.choices, default=VolumeScope.EVERYWHERE
    )
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.PROTECT)
    # Set by the first rule. It stays when rules go, also with their group: no removal opens it.
    is_restricted = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Only tasks of those whom access rules name, and of administrators, mount it.",
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            unique_name("volume", removable=True),
            models.CheckConstraint(
                condition=models.Q(path__startswith="/"),
                name="volume_path_is_absolute",
                violation_error_message="The path begins with a slash.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class VolumeUserPermission(UserObjectPermissionBase, GrantOrigin):
    """`view_volume` mounts a volume read-only, `change_volume` as the volume is."""

    content_object = models.ForeignKey(Volume, on_delete=models.CASCADE)


class VolumeGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Volume, on_delete=models.CASCADE)
