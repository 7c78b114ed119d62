"""The answer of a preview."""

from typing import Any

from rest_framework import serializers


def _amounts() -> serializers.DictField:
    return serializers.DictField(child=serializers.CharField())


class _TaskRow(serializers.Serializer[Any]):
    task = serializers.UUIDField()
    name = serializers.CharField()
    queue = serializers.CharField()
    policy = serializers.CharField()


class _PlacedRow(_TaskRow):
    pool = serializers.CharField(allow_blank=True)


class _StartRow(_PlacedRow):
    standing = serializers.ChoiceField(choices=["reserved", "lent", "over_quota"])
    takes_room_of = serializers.IntegerField(help_text="Tasks that have to stop for it first.")


class _PreemptedRow(_PlacedRow):
    waits_again = serializers.BooleanField(help_text="Else it is paused or ended.")
    beneficiary = _TaskRow()


class _NamedTask(serializers.Serializer[Any]):
    task = serializers.UUIDField()
    name = serializers.CharField()


class _RunRow(serializers.Serializer[Any]):
    """Equal waiting tasks of a queue; `tasks` are the first of them."""

    queue = serializers.CharField()
    policy = serializers.CharField()
    count = serializers.IntegerField()
    tasks = _NamedTask(many=True)
    code = serializers.CharField()
    sentence = serializers.CharField()


class _WaitingRow(_RunRow):
    help = serializers.CharField()


class _ClosedRow(serializers.Serializer[Any]):
    queue = serializers.CharField()
    policy = serializers.CharField()
    closes = serializers.BooleanField(help_text="False: only some people lose their rights.")
    tasks_returned = serializers.IntegerField(help_text="Waiting tasks that become drafts.")


class _PolicyUse(serializers.Serializer[Any]):
    """What those below it hold counts too."""

    reservation = _amounts()
    limit = _amounts()
    reserved = _amounts()
    over_quota = _amounts()
    running = serializers.IntegerField()
    waiting = serializers.IntegerField()


class _PolicyRow(serializers.Serializer[Any]):
    policy = serializers.CharField()
    parent = serializers.CharField(allow_null=True)  # type: ignore[assignment]  # the name of the API, not DRF's attribute
    before = _PolicyUse(allow_null=True)
    after = _PolicyUse(allow_null=True)
    starts = serializers.IntegerField(help_text="Of its own tasks, without those below it.")
    preempted = serializers.IntegerField(help_text="Of its own tasks, without those below it.")


class _PoolUse(serializers.Serializer[Any]):
    capacity = _amounts()
    use = _amounts()
    running = serializers.IntegerField()


class _PoolRow(serializers.Serializer[Any]):
    pool = serializers.CharField()
    before = _PoolUse(allow_null=True)
    after = _PoolUse(allow_null=True)


class _Listed(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Tasks, in all.")
    more = serializers.IntegerField(help_text="Rows that are left out.")


class _Starts(_Listed):
    rows = _StartRow(many=True)


class _Preempted(_Listed):
    rows = _PreemptedRow(many=True)


class _Placed(_Listed):
    rows = _PlacedRow(many=True)


class _Rejected(_Listed):
    rows = _RunRow(many=True)


class _Closed(_Listed):
    rows = _ClosedRow(many=True)


class _Waiting(_Listed):
    rows = _WaitingRow(many=True)


class PreviewSerializer(serializers.Serializer[Any]):
    """What a change would do, compared with what happens without it.

    Both sides are what comes of it once passes rest, with all victims gone.
    """

    passes = serializers.IntegerField(help_text="That it took with the change.")
    is_at_rest = serializers.BooleanField(help_text="False: there was more to come.")
    starts = _Starts()
    preempted = _Preempted()
    moved = _Placed()
    delayed = _Placed(help_text="Would start without the change, and wait with it.")
    spared = _Placed(help_text="Would be preempted without the change, and run on with it.")
    rejected = _Rejected(help_text="Could never run any more.")
    closed = _Closed(help_text="Queues that close, or whose tasks become drafts.")
    waiting = _Waiting()
    policies = _PolicyRow(many=True)
    pools = _PoolRow(many=True)
