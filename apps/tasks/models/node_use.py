"""How much nodes use of what they have: sampled with their GPUs, once a minute."""

from django.db import models

from apps.nodes.models import Node


class NodeUse(models.Model):
    """Five minutes of one node, beginning at `at`.

    `sampled_ms` is how much of them samples stand for; `memory` is the sum of what was in use then,
    in 2^20 bytes times milliseconds, `disk_mb` the most of the disk of its helper.

    In `counted_ms` of that its counters were compared with those before: `cpu` is the sum of the
    utilisation of its CPUs, in percent times milliseconds, `received` and `sent` are bytes.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="uses")
    at = models.DateTimeField()
    sampled_ms = models.PositiveIntegerField()
    memory = models.PositiveBigIntegerField()
    counted_ms = models.PositiveIntegerField()
    cpu = models.PositiveBigIntegerField()
    received = models.PositiveBigIntegerField()
    sent = models.PositiveBigIntegerField()
    disk_mb = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "at"], name="node_use_once")]
        # What is old enough to be removed.
        indexes = [models.Index(fields=["at"], name="node_use_by_time")]

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.at}"
