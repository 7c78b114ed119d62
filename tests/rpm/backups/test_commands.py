"""`manage.py backup`, `restore` and `upgrade`, as an administrator runs them."""

import os
import sqlite3
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet

from tests.rpm.backups.site import ROOT, Site

pytestmark = pytest.mark.database

MADE_LATER = "another key of forty signs, made later on"


def test_what_was_backed_up_comes_back_with_its_keys(site: Site, file: str) -> None:
    key = (site.home / "credential-key").read_text()
    output = site.done(["backup", file])
    site.add("bob")
    (site.home / "credential-key").write_text(MADE_LATER)

    refused, restored = site.run(["restore", file], ["restore", file, "--replace"])

    assert not refused[0]
    assert "--replace" in refused[1]
    assert restored[0], restored[1]
    assert site.people == ["alice"]
    assert (site.home / "credential-key").read_text() == key
    assert (site.home / "credential-key").stat().st_mode & 0o777 == 0o600
    assert (site.home / "credential-key.before-restore").read_text() == MADE_LATER
    kept = {path.name for path in site.home.glob("*.before-restore")}
    assert {line.split()[4] for line in restored[1].splitlines() if "What was" in line} == kept
    assert "not sealed" in output
    assert Path(file).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_not_there_is_no_file(site: Site, file: str) -> None:
    (refused,) = site.run(["backup", f"{file}/"])

    assert not refused[0]
    assert "There is no folder" in refused[1]
    assert not Path(file).exists()


def test_the_database_says_that_it_was_restored_and_can_be_gone_on_with(
    site: Site, file: str
) -> None:
    assert site.ask("SELECT restored_at FROM nodes_installation") == [None]
    with site.session() as session:
        # Made while an earlier restore was not settled: that says nothing about this one.
        session.execute(
            "UPDATE nodes_installation SET restored_at = '2026-01-01', "
            "restore_confirmed_at = '2026-01-02'"
        )

    site.done(["backup", file], ["restore", file, "--replace"], ["migrate", "--check"])

    (at,) = site.ask("SELECT restored_at FROM nodes_installation")
    assert at is not None
    assert "2026-01-01" not in str(at)
    assert site.ask("SELECT restore_confirmed_at FROM nodes_installation") == [None]
    assert "installation.restored" in site.ask("SELECT kind FROM events_event")
    # Numbers of rows and triggers came along.
    site.add("carol")
    with (
        pytest.raises((psycopg.errors.CheckViolation, sqlite3.IntegrityError)),
        site.session() as session,
    ):
        session.execute("UPDATE events_event SET kind = 'changed'")


def test_the_audit_log_says_what_was_backed_up_and_put_back(site: Site, file: str) -> None:
    site.done(["backup", file])
    (before,) = site.ask("SELECT count(*) FROM events_auditentry WHERE verb LIKE '%.backed_up'")
    site.done(["restore", file, "--replace"], ["setup_token"], ["audit", "verify"])

    # What was noted of the backup was not in it.
    assert before == 1
    assert site.ask(
        "SELECT verb FROM events_auditentry WHERE verb LIKE 'installation.%' ORDER BY id"
    ) == ["installation.restored"]
    assert site.ask("SELECT via FROM events_auditentry ORDER BY id DESC")[0] == "command line"


def test_a_database_that_is_behind_is_backed_up_all_the_same(site: Site, file: str) -> None:
    with site.session() as session:
        session.execute("ALTER TABLE events_auditentry RENAME TO elsewhere")

    output = site.done(["backup", file])

    assert "audit log does not say so" in output


def test_an_empty_database_takes_a_backup_without_more_words(site: Site, file: str) -> None:
    site.done(["backup", file])
    with site.session() as session:
        for table in ("accounts_user_groups", "accounts_user"):
            session.execute(f"DELETE FROM {table}")

    site.done(["restore", file])

    assert site.people == ["alice"]


def test_nothing_is_restored_under_the_feet_of_others(site: Site, file: str) -> None:
    site.done(["backup", file])
    site.add("bob")

    with site.session() as session:
        session.execute("SELECT count(*) FROM accounts_user").fetchall()
        words = site.refused("restore", file, "--replace")

    assert "stop web, workers and beat first" in words
    assert site.people == ["alice", "bob"]


def test_a_restoring_that_fails_at_its_end_changes_nothing(site: Site, file: str) -> None:
    with site.session() as session:
        # In the backup there is no log into which the last statement could write.
        session.execute("ALTER TABLE events_event RENAME TO elsewhere")
    site.done(["backup", file])
    with site.session() as session:
        session.execute("ALTER TABLE elsewhere RENAME TO events_event")
    site.add("bob")
    (site.home / "secret-key").write_text(MADE_LATER)

    words = site.refused("restore", file, "--replace")

    assert "events_event" in words
    assert site.people == ["alice", "bob"]
    assert site.ask("SELECT restored_at FROM nodes_installation") == [None]
    assert (site.home / "secret-key").read_text() == MADE_LATER
    assert [path.name for path in site.home.iterdir() if path.name.endswith(".tmp")] == []


def test_a_sealed_backup_needs_its_passphrase(site: Site, file: str, tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("correct horse battery staple\n")
    (tmp_path / "wrong").write_text("another one\n")
    sealed = f"--passphrase-file={tmp_path / 'passphrase'}"
    wrong = f"--passphrase-file={tmp_path / 'wrong'}"

    made, without, mistaken, right = site.run(
        ["backup", file, sealed],
        ["restore", file, "--replace"],
        ["restore", file, "--replace", wrong],
        ["restore", file, "--replace", sealed],
    )

    assert made[0], made[1]
    assert (site.home / "credential-key").read_bytes() not in Path(file).read_bytes()
    assert not without[0]
    assert "sealed" in without[1]
    assert not mistaken[0]
    assert "another one" in mistaken[1]
    assert right[0], right[1]


def test_what_another_version_made_is_refused_with_its_name(site: Site, file: str) -> None:
    with site.session() as session:
        session.execute(
            "INSERT INTO django_migrations (app, name, applied) "
            "VALUES ('tasks', '9999_later', CURRENT_TIMESTAMP)"
        )

    made, restored, upgraded, migrated, doctor = site.run(
        ["backup", file],
        ["restore", file, "--replace"],
        ["upgrade", "--no-backup"],
        ["migrate", "--verbosity=0"],
        ["doctor"],
    )

    assert made[0], made[1]
    assert not restored[0]
    assert "tasks.9999_later" in restored[1]
    for is_fine, words in (upgraded, migrated, doctor):
        assert not is_fine
        assert "tasks.9999_later" in words


def test_upgrading_backs_up_migrates_and_says_what_to_restart(site: Site) -> None:
    # A library whose last migration can be undone: RPM has one set of initial migrations.
    back, upgraded, checked = site.run(
        ["migrate", "mfa", "0002", "--verbosity=0"], ["upgrade"], ["migrate", "--check"]
    )

    assert back[0], back[1]
    assert upgraded[0], upgraded[1]
    (made,) = (site.home / "backups").iterdir()
    assert str(made) in upgraded[1]
    assert made.stat().st_mode & 0o777 == 0o600
    assert "mfa.0003" in upgraded[1]
    assert "Restart now" in upgraded[1]
    assert checked[0], checked[1]


def test_upgrading_binds_what_was_sealed_and_restoring_an_older_backup_again(
    site: Site, file: str
) -> None:
    (key,) = (site.home / "key-ring").read_text().split()
    sealed = Fernet(key).encrypt(b"link").decode()
    with site.session() as session:
        session.execute(
            "INSERT INTO accounts_invitation (user_id, token_hash, asks_name, created_at, "
            "expires_at, mail_state, mail_detail, sealed_link) SELECT id, 'h', is_superuser, "
            f"date_joined, date_joined, 'none', '', '{sealed}' FROM accounts_user"
        )
    statement = "SELECT sealed_link FROM accounts_invitation"

    site.done(["backup", file], ["upgrade", "--no-backup"])
    (bound,) = site.ask(statement)
    site.done(["restore", file, "--replace"])
    (before,) = site.ask(statement)
    site.done(["upgrade", "--no-backup"])
    (again,) = site.ask(statement)
    site.done(["backup", f"{file}-bound"], ["restore", f"{file}-bound", "--replace"])

    assert before == sealed
    assert bound.startswith("rpm2.")
    assert again.startswith("rpm2.")
    assert site.ask(statement) == [again]
    assert (site.home / "seals-bound").exists()


def test_a_backup_replaces_no_file(site: Site, file: str, tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("correct horse battery staple\n")
    site.done(["backup", file, f"--passphrase-file={tmp_path / 'passphrase'}"])
    sealed = Path(file).read_bytes()

    words = site.refused("backup", file)

    assert "exists already" in words
    assert Path(file).read_bytes() == sealed


def test_a_backup_is_verified_without_touching_anything(site: Site, file: str) -> None:
    site.done(["backup", file])
    home = sorted(site.home.iterdir())
    cut = Path(f"{file}-cut")
    content = Path(file).read_bytes()
    cut.write_bytes(content[: len(content) // 2])

    whole, broken = site.run(["backup", file, "--verify"], ["backup", str(cut), "--verify"])

    assert whole[0], whole[1]
    assert "is whole" in whole[1]
    assert "credential-key" in whole[1]
    assert not broken[0]
    assert sorted(site.home.iterdir()) == home


def test_old_backups_are_pruned_by_name_and_age(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    others = {"rpm-20200101T000000Z.backup.txt", "before-1.0-20200101T000000Z.rpm"}
    for day in (1, 2, 3):
        old = folder / f"rpm-2020010{day}T000000Z.backup"
        old.touch()
        os.utime(old, (day, day))
    for name in others:
        (folder / name).touch()

    output = site.done(["backup", str(folder), "--keep", "2"])

    left = {path.name for path in folder.iterdir()} - others
    assert "rpm-20200103T000000Z.backup" in left
    assert len(left) == 2
    assert others <= {path.name for path in folder.iterdir()}
    assert f"Removed {folder / 'rpm-20200101T000000Z.backup'}." in output
    assert "--keep" in site.refused("backup", str(folder), "--keep", "0")


def test_static_files_are_collected_into_a_folder_that_is_not_there_yet(
    site: Site, tmp_path: Path
) -> None:
    root = tmp_path / "served" / "static"
    served = {"RPM_SERVE_SOURCES": "0", "RPM_STATIC_ROOT": str(root)}
    file = str(tmp_path / "file")

    before, upgraded, after, made = site.run(
        ["doctor"], ["upgrade", "--no-backup"], ["doctor"], ["backup", file], **served
    )
    (root / "dist" / "app.css").write_text("of another version")
    stale, restored = site.run(["doctor"], ["restore", file, "--replace"], **served)

    assert "/static/dist/app.css is not served" in before[1]
    assert upgraded[0], upgraded[1]
    assert f"Static files are in {root}." in upgraded[1]
    assert "styles and scripts are served" in after[1]
    assert made[0], made[1]
    assert "as another version built it" in stale[1]
    assert restored[0], restored[1]
    assert (root / "dist" / "app.css").read_bytes() == (
        ROOT / "static" / "dist" / "app.css"
    ).read_bytes()


@pytest.mark.postgres_only
def test_a_password_is_in_no_argument_of_a_program(site: Site, file: str, tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "pg_dump").write_text(
        '#!/bin/sh\ncase "$1" in --version) echo "pg_dump (PostgreSQL) 99.1" ;;\n'
        f'*) echo "$@" > {tmp_path}/arguments; echo "out of order" >&2; exit 1 ;; esac\n'
    )
    (folder / "pg_dump").chmod(0o755)
    alone = {"RPM_POSTGRES_PROGRAMS": str(folder), "PATH": os.environ["PATH"]}

    ((is_made, words),) = site.run(["backup", file], **alone)

    assert not is_made
    assert "out of order" in words
    arguments = (tmp_path / "arguments").read_text()
    assert "dbname=" in arguments
    assert site.url.split(":")[2].split("@")[0] not in arguments


@pytest.mark.postgres_only
def test_missing_programs_are_named(site: Site, file: str, tmp_path: Path) -> None:
    ((is_made, words),) = site.run(["backup", file], RPM_POSTGRES_PROGRAMS=str(tmp_path))

    assert not is_made
    assert "postgresql-client-" in words
    assert not Path(file).exists()
