"""`manage.py backup` where its account may not write or read."""

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rpm.backups.site import Site

pytestmark = pytest.mark.database


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        pytest.param(
            ["backup", "{closed}/x.backup"],
            "{closed} cannot be written to: Permission denied. This command runs as {account}.",
            id="a new file",
        ),
        pytest.param(
            ["backup", "{closed}/inner/"],
            "{closed} cannot be written to: Permission",
            id="a folder",
        ),
        pytest.param(
            ["backup", "{closed}/inner/x.backup"],
            "{closed}/inner cannot be written to: Permission denied.",
            id="a file further below",
        ),
        pytest.param(
            ["backup", "{closed}/x.backup", "--verify"],
            "{closed}/x.backup cannot be read: Permission denied. This command runs as {account}.",
            id="reading a backup",
        ),
        pytest.param(
            ["backup", "{file}", "--passphrase-file={closed}/passphrase"],
            "{closed}/passphrase cannot be read: Permission denied. This command runs as",
            id="reading a passphrase",
        ),
    ],
)
def test_a_folder_that_is_closed_to_the_account_is_named_with_the_account(
    site: Site, file: str, tmp_path: Path, words: list[str], refusal: str
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    account = pwd.getpwuid(os.geteuid()).pw_name
    values = {"closed": closed, "file": file, "account": account}

    found = without_rights(site).refused(*(word.format(**values) for word in words))

    assert found.startswith(refusal.format(**values)), found


def test_a_backup_in_a_folder_that_is_readable_only_is_verified(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    site.done(["backup", str(folder / "file")])
    folder.chmod(0o555)

    assert "is whole" in without_rights(site).done(["backup", str(folder / "file"), "--verify"])


def without_rights(site: Site) -> Site:
    """The site with commands for which modes of files count, also where the tests run as root."""
    if os.geteuid() != 0:
        return site
    dropped = "--bounding-set=-dac_override,-dac_read_search"
    return replace(site, prefix=("setpriv", "--inh-caps=-all", dropped))
