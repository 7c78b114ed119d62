"""What a task sends as an archive writes nothing outside of its target."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from rpm_client.archives import HEADER_BYTES, PartsFile, UnsafeArchive, pack, unpack

Entry = tuple[str, bytes, str]


def archive(*entries: Entry) -> PartsFile:
    """Members of a name, a type, and a content or link."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as written:
        for name, kind, content in entries:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = content
            written.addfile(member, io.BytesIO(content.encode()))
    content_bytes = target.getvalue()
    return PartsFile(iter([content_bytes[i : i + 700] for i in range(0, len(content_bytes), 700)]))


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
TREE: Entry = ("data", FOLDER, "")


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([("../out", FILE, "x")], id="above"),
        pytest.param([("/tmp/out", FILE, "x")], id="absolute"),
        pytest.param([("other", FILE, "x")], id="another name"),
        pytest.param([TREE, ("data/../../out", FILE, "x")], id="up inside"),
        pytest.param([TREE, ("data/a", LINK, "../../out")], id="link above"),
        pytest.param([TREE, ("data/a", LINK, "/etc")], id="absolute link"),
        pytest.param([TREE, ("data/a", LINK, "b/../../out")], id="link up in its middle"),
        pytest.param(
            [TREE, ("data/a", LINK, "."), ("data/a/b", LINK, "../out")], id="through a link"
        ),
        pytest.param([TREE, ("data/a", HARD, "../out")], id="hard link above"),
        pytest.param([TREE, ("data/a", tarfile.CHRTYPE, "")], id="device"),
        pytest.param([TREE, ("data/a", tarfile.FIFOTYPE, "")], id="pipe"),
        pytest.param([TREE, ("data/" + "a/" * 3000 + "b", FILE, "x")], id="long path"),
        pytest.param([TREE, ("data/" + "a" * 2 * HEADER_BYTES, FILE, "x")], id="long name"),
        pytest.param([("data", FILE, "x"), ("data/out", FILE, "x")], id="below a file"),
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "out").write_text("mine")

    with pytest.raises((UnsafeArchive, OSError)):
        unpack(archive(*entries), "data", str(target))

    assert (tmp_path / "out").read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "target"]
    assert {one.name for one in target.iterdir()} <= {"data"}


def test_links_that_an_earlier_copy_left_are_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target" / "data").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "target" / "data" / "folder").symlink_to(tmp_path / "out")
    (tmp_path / "target" / "data" / "link").symlink_to(tmp_path / "file")
    unpack(archive(TREE, ("data/link", FILE, "new")), "data", str(tmp_path / "target"))

    with pytest.raises(UnsafeArchive):
        unpack(archive(TREE, ("data/folder/x", FILE, "x")), "data", str(tmp_path / "target"))

    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "target" / "data" / "link").read_text() == "new"
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_comes_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(os.urandom(100_000))
    (source / "link").symlink_to("deep/file")
    os.mkfifo(source / "pipe")
    parts: list[bytes] = []

    pack(str(source), parts.append)
    unpack(PartsFile(iter(parts)), ".", str(tmp_path / "target"))

    target = tmp_path / "target"
    assert (target / "deep" / "file").read_bytes() == (source / "deep" / "file").read_bytes()
    assert (target / "link").readlink() == Path("deep/file")
    assert not (target / "pipe").exists()


@pytest.mark.parametrize(
    ("target", "want"),
    [("there", "there/data"), ("new", "new"), ("file", "file")],
)
def test_a_file_comes_into_a_folder_or_gets_the_path(
    tmp_path: Path, target: str, want: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("earlier")

    unpack(archive(("data", FILE, "new")), "data", str(tmp_path / target))

    assert (tmp_path / want).read_text() == "new"
    with pytest.raises(NotADirectoryError):
        unpack(archive(("data", FILE, "new")), "data", f"{tmp_path}/missing/")


@pytest.mark.parametrize("name", ["data", "data/deep/file"])
def test_a_copy_that_is_cut_leaves_the_file_that_was_there(tmp_path: Path, name: str) -> None:
    entries = [(name, FILE, "new" * 10_000)]
    whole = archive(*([TREE] if "/" in name else []), *entries).read()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("earlier")

    with pytest.raises(tarfile.TarError):
        unpack(PartsFile(iter([whole[:20_000]])), "data", str(tmp_path))

    assert (tmp_path / name).read_text() == "earlier"
    assert [one.name for one in tmp_path.rglob("*") if one.is_file()] == [Path(name).name]


def test_a_second_copy_replaces_files_of_two_names(tmp_path: Path) -> None:
    entries = (
        TREE,
        ("data/a", FILE, "new"),
        ("data/b", HARD, "data/a"),
        ("data/a", HARD, "data/b"),
    )
    for _ in range(2):
        unpack(archive(*entries), "data", str(tmp_path))

    found = {one.name: one for one in (tmp_path / "data").iterdir()}
    assert sorted(found) == ["a", "b"]
    assert found["a"].samefile(found["b"])
