from pathlib import Path

import pytest

from tools import packages


def test_what_no_program_shows_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chromium = tmp_path / "chromium-browser"
    chromium.write_text("#!/bin/sh\n")
    chromium.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "SYSTEM_PATHS", ())
    monkeypatch.setattr(packages, "POSTGRES_DIRECTORIES", ())

    missing = packages.missing_packages()

    assert "chromium" not in missing
    assert {"podman", "postgresql", "openssh-server"} <= set(missing)


def test_the_newest_postgresql_of_several_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("9.6", "15", "13"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "initdb").touch()
    monkeypatch.setattr(packages, "POSTGRES_DIRECTORIES", (str(tmp_path),))

    assert packages.find_program("initdb") == str(tmp_path / "15" / "bin" / "initdb")


def test_no_service_starts_while_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "POLICY", policy)

    with packages.services_stay_off():
        assert policy.read_text().endswith("exit 101\n")
        assert policy.stat().st_mode & 0o111

    assert not policy.exists()


def test_a_policy_of_the_machine_itself_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    monkeypatch.setattr(packages, "POLICY", policy)

    with packages.services_stay_off():
        pass

    assert policy.read_text() == "#!/bin/sh\nexit 0\n"
