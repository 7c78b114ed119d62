"""The chain of the audit log, and changes of it in the database."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction

from apps.accounts.models import User
from apps.events.chain import entry_facts, entry_hash
from apps.events.models import GENESIS, AuditChain, AuditEntry
from apps.events.selectors import audit_unsealed, audit_verified
from apps.events.services import event_record
from apps.events.services.seals import audit_seal
from tests.events.conftest import Tampering

pytestmark = pytest.mark.django_db


@pytest.fixture
def chain(root: User) -> None:
    """Twelve sealed entries."""
    for number in range(1, 13):
        event_record(
            "policy.changed",
            actor=root,
            object_type="policy",
            object_id=number,
            data={"name": f"P{number}", "before": {"weight": 1}, "after": {"weight": number}},
        )
    audit_seal()


def verify(**options: str) -> str:
    """What the command says; its error as its last line."""
    out = StringIO()
    try:
        call_command("audit", "verify", stdout=out, **options)
    except CommandError as error:
        out.write(str(error))
    return out.getvalue()


def test_an_untouched_chain_is_whole_and_says_its_head(chain: None) -> None:
    said = verify()

    head = AuditEntry.objects.get(position=12).hash
    assert "The audit log is whole: 12 entries." in said
    assert f"Head: {head}" in said


def test_each_entry_covers_the_one_before(chain: None) -> None:
    first, second = AuditEntry.objects.filter(position__in=[1, 2]).order_by("position")

    assert first.previous_hash == GENESIS
    assert second.previous_hash == first.hash == entry_hash(entry_facts(first))


def test_a_new_entry_is_not_sealed_until_somebody_seals(root: User) -> None:
    event_record("queue.paused", actor=root, object_type="queue", object_id=1)

    assert audit_unsealed() == 1
    assert "1 not sealed yet" in verify()
    assert audit_seal() == 1
    assert audit_seal() == 0
    assert AuditChain.objects.get().length == 1


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE events_auditentry SET actor = 'eve' WHERE position = 5", id="content"),
        pytest.param("UPDATE events_auditentry SET hash = 'made up' WHERE position = 5", id="hash"),
        pytest.param(
            "UPDATE events_auditentry SET position = NULL WHERE position = 5", id="unseal"
        ),
        pytest.param("DELETE FROM events_auditentry WHERE position = 5", id="delete"),
        pytest.param("UPDATE events_auditchain SET length = 3", id="a shorter chain"),
        pytest.param("DELETE FROM events_auditchain", id="no chain"),
        pytest.param(
            "INSERT INTO events_auditentry (at, verb, actor, acted_by, object_type, object_id, "
            "object_name, others, before, after, details, reason, via, request_id, address, "
            "position, previous_hash, hash) SELECT at, verb, actor, acted_by, object_type, "
            "object_id, object_name, others, before, after, details, reason, via, request_id, "
            "address, 13, previous_hash, hash FROM events_auditentry WHERE position = 12",
            id="born sealed",
        ),
    ],
)
def test_the_database_refuses_to_change_what_is_sealed(chain: None, statement: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)

    assert "The audit log is whole: 12 entries." in verify()


@pytest.mark.parametrize(
    "change", ["actor = 'eve'", "reason = 'because'", "object_id = '9'", "address = '::1'"]
)
def test_the_database_refuses_to_change_what_waits_to_be_sealed(root: User, change: str) -> None:
    event_record("queue.paused", actor=root, object_type="queue", object_id=1)

    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE events_auditentry SET {change}, position = 1")


# Only SQLite knows these statements; PostgreSQL refuses them as it refuses any nonsense.
@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(
            "REPLACE INTO events_auditentry ({columns}) SELECT {values} FROM events_auditentry "
            "WHERE position IS NULL",
            id="what waits to be sealed",
        ),
        pytest.param(
            "UPDATE OR REPLACE events_auditentry SET position = 2 WHERE position IS NULL",
            id="the place of a sealed one",
        ),
        pytest.param("REPLACE INTO events_auditchain VALUES (1, 0, 'x')", id="the chain"),
    ],
)
def test_nothing_is_put_in_the_place_of_an_entry(chain: None, root: User, statement: str) -> None:
    event_record("queue.paused", actor=root, object_type="queue", object_id=1)
    names = [str(one.column) for one in AuditEntry._meta.local_fields]
    columns = ", ".join(names)
    values = columns.replace("verb", "'forged'")

    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format(columns=columns, values=values))

    assert AuditEntry.objects.count() == 13
    assert "12 entries" in verify()


@pytest.mark.postgres_only
def test_the_database_refuses_to_empty_the_log(chain: None) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE events_auditentry, events_auditchain")


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        pytest.param(
            "UPDATE events_auditentry SET actor = 'eve' WHERE position = 5",
            ["Entry 5 (", "was changed"],
            id="another actor",
        ),
        pytest.param(
            "UPDATE events_auditentry SET after = '{\"weight\": 500}' WHERE position = 7",
            ["Entry 7 (", "was changed"],
            id="another value",
        ),
        pytest.param(
            "UPDATE events_auditentry SET hash = previous_hash WHERE position = 7",
            ["Entry 7 (", "was changed"],
            id="another hash",
        ),
        pytest.param(
            "DELETE FROM events_auditentry WHERE position = 4",
            ["Entry 4 was removed"],
            id="one gone",
        ),
        pytest.param(
            "DELETE FROM events_auditentry WHERE position IN (4, 5, 6)",
            ["Entries 4 to 6 were removed"],
            id="several gone",
        ),
        pytest.param(
            "DELETE FROM events_auditentry WHERE position = 1", ["Entry 1 was removed"], id="first"
        ),
        pytest.param(
            "DELETE FROM events_auditentry WHERE position > 10",
            ["Entries 11 to 12 were removed"],
            id="the last ones gone",
        ),
        pytest.param(
            "UPDATE events_auditentry SET position = NULL WHERE position = 9",
            ["Entry 9 was removed", "1 not sealed yet"],
            id="taken out of the chain",
        ),
        pytest.param(
            "UPDATE events_auditentry SET position = 13 WHERE position = 3",
            ["Entry 3 was removed", "Entry 13 was added"],
            id="moved to the end",
        ),
        pytest.param(
            "UPDATE events_auditchain SET length = 11", ["Entry 12 was added"], id="not counted"
        ),
    ],
)
def test_verify_names_what_somebody_did_in_the_database(
    chain: None, tamper: Tampering, statement: str, want: list[str]
) -> None:
    tamper(statement)

    said = verify()

    assert all(words in said for words in want), said
    assert "not whole" in said


def test_an_entry_that_was_changed_and_hashed_again_breaks_the_one_behind_it(
    chain: None, tamper: Tampering
) -> None:
    entry = AuditEntry.objects.get(position=6)
    entry.actor = "eve"
    forged = entry_hash(entry_facts(entry))

    tamper(f"UPDATE events_auditentry SET actor = 'eve', hash = '{forged}' WHERE position = 6")

    assert "Entry 6 is not the one that stood before entry 7" in verify()


def test_a_chain_that_was_rewritten_from_end_to_end_is_known_by_a_head_kept_elsewhere(
    chain: None, tamper: Tampering
) -> None:
    kept = AuditChain.objects.get().head
    tamper("UPDATE events_auditentry SET actor = 'eve' WHERE position = 6")
    forge_from(6, tamper)

    assert audit_verified().is_whole
    assert f"No entry has the hash {kept}" in verify(expect=kept)


def test_a_head_kept_elsewhere_is_found_after_the_chain_has_grown(chain: None, root: User) -> None:
    kept = AuditChain.objects.get().head
    event_record("queue.paused", actor=root, object_type="queue", object_id=1)
    audit_seal()

    assert "The expected hash is that of entry 12." in verify(expect=kept)


def test_sealing_again_after_a_removal_does_not_repair_the_chain(
    chain: None, root: User, tamper: Tampering
) -> None:
    tamper("DELETE FROM events_auditentry WHERE position > 10")
    event_record("queue.paused", actor=root, object_type="queue", object_id=1)

    audit_seal()

    assert "Entries 11 to 12 were removed" in verify()


def forge_from(position: int, tamper: Tampering) -> None:
    """Write all hashes from here on again, and the chain's row, as an owner of the database can."""
    head = AuditEntry.objects.get(position=position - 1).hash
    for entry in AuditEntry.objects.filter(position__gte=position).order_by("position"):
        entry.previous_hash = head
        before, head = head, entry_hash(entry_facts(entry))
        tamper(
            f"UPDATE events_auditentry SET previous_hash = '{before}', hash = '{head}' "
            f"WHERE position = {entry.position}"
        )
    tamper(f"UPDATE events_auditchain SET head = '{head}'")
