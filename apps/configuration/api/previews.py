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
    tier = serializers.ChoiceField(choices=["reserved", "borrowed", "over_quota"])
    preempts = serializers.IntegerField(help_text="Victims that have to stop for it first.")


class _PreemptedRow(_PlacedRow):
    is_requeued = serializers.BooleanField(help_text="Else it is paused or ended.")
    beneficiary = _TaskRow()


class _NamedTask(serializers.Serializer[Any]):
    task = serializers.UUIDField()
    name = serializers.CharField()


class _TaskGroupRow(serializers.Serializer[Any]):
    """Equal waiting tasks of a queue; `tasks` are the first of them."""

    queue = serializers.CharField()
    policy = serializers.CharField()
    count = serializers.IntegerField()
    tasks = _NamedTask(many=True)
    code = serializers.CharField()
    sentence = serializers.CharField()


class _WaitingRow(_TaskGroupRow):
    help = serializers.CharField()


class _ClosedRow(serializers.Serializer[Any]):
    queue = serializers.CharField()
    policy = serializers.CharField()
    closes = serializers.BooleanField(help_text="False: only some people lose their permissions.")
    tasks_returned = serializers.IntegerField(help_text="Waiting tasks that become drafts.")


class _PolicyUse(serializers.Serializer[Any]):
    """The use of a policy, including policies below it."""

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


class _RowList(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Tasks, in all.")
    more = serializers.IntegerField(help_text="Rows that are left out.")


class _Starts(_RowList):
    rows = _StartRow(many=True)


class _Preempted(_RowList):
    rows = _PreemptedRow(many=True)


class _Placed(_RowList):
    rows = _PlacedRow(many=True)


class _Rejected(_RowList):
    rows = _TaskGroupRow(many=True)


class _Closed(_RowList):
    rows = _ClosedRow(many=True)


class _Waiting(_RowList):
    rows = _WaitingRow(many=True)


class PreviewSerializer(serializers.Serializer[Any]):
    """What a change would do, compared with what happens without it.

    Both sides are the state once passes find nothing more to do and all victims have stopped.
    """

    passes = serializers.IntegerField(help_text="Number of passes with the change.")
    is_at_rest = serializers.BooleanField(
        help_text="False: further passes would have changed more."
    )
    starts = _Starts()
    preempted = _Preempted()
    moved = _Placed()
    delayed = _Placed(help_text="Would start without the change, and wait with it.")
    no_longer_preempted = _Placed(
        help_text="Would be preempted without the change, and run on with it."
    )
    rejected = _Rejected(help_text="Could never run any more.")
    closed = _Closed(help_text="Queues that close, or whose tasks become drafts.")
    waiting = _Waiting()
    policies = _PolicyRow(many=True)
    pools = _PoolRow(many=True)
