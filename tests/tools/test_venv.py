import hashlib
from pathlib import Path

import pytest

from tools import venv


def program(folder: Path, name: str, output: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "want"),
    [
        pytest.param("v18.20.4", False, id="too old"),
        pytest.param("v20.0.0", True, id="just new enough"),
        pytest.param("v24.1.0", True, id="newer"),
        pytest.param("not found", False, id="no version at all"),
    ],
)
def test_node_is_used_from_version_20_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, want: bool
) -> None:
    program(tmp_path / "bin", "node", version)
    program(tmp_path / "bin", "npm", "10.0.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert venv.has_node() is want


def test_node_without_npm_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "node", "v24.1.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert venv.has_node() is False


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lock file and an environment whose pip writes down what it is asked."""
    monkeypatch.setattr(venv, "VENV", tmp_path / "venv")
    monkeypatch.setattr(venv, "REQUIREMENTS", tmp_path)
    (tmp_path / "venv").mkdir()
    (tmp_path / "run.txt").write_text("django==5.2.19 \\\n    --hash=sha256:00\n")
    recorder = tmp_path / "pip"
    recorder.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    recorder.chmod(0o755)
    monkeypatch.setattr(venv, "pip", lambda: [str(recorder)])
    return tmp_path


def test_a_lock_is_installed_with_its_hashes_and_once(place: Path) -> None:
    venv.install("run")
    venv.install("run")

    asked = (place / "asked").read_text().splitlines()
    assert len(asked) == 1
    assert "--require-hashes" in asked[0]
    assert asked[0].endswith(f"-r {place / 'run.txt'}")


def test_a_changed_lock_is_installed_again(place: Path) -> None:
    venv.install("run")
    (place / "run.txt").write_text("django==5.2.20 \\\n    --hash=sha256:01\n")
    venv.install("run")

    assert len((place / "asked").read_text().splitlines()) == 2
    want = hashlib.sha256((place / "run.txt").read_bytes()).hexdigest()
    assert (place / "venv" / ".installed-run").read_text() == want


def test_a_failed_installation_is_tried_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "pip", lambda: ["false"])

    with pytest.raises(SystemExit, match=r"could not install requirements/run\.txt"):
        venv.install("run")

    assert not (place / "venv" / ".installed-run").exists()


def test_an_unknown_set_of_requirements_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert venv.main(["everything"]) == 2
    assert "known: run, dev" in capsys.readouterr().err
