"""`python -m lab.placement`: on a small cluster, with errors that say what is wrong."""

import gzip
import json
from pathlib import Path

import pytest

from lab.placement.__main__ import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"node-{number},{cpu},65536,{gpu},{model}\n"
    for number, (cpu, gpu, model) in enumerate(
        [(64000, 8, "G2"), (64000, 8, "G2"), (16000, 2, "P100"), (32000, 4, "T4")]
    )
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "a,4000,1024,1,460,\nb,8000,2048,1,1000,T4|P100\nc,16000,4096,4,1000,G2\n"
    "d,2000,1024,0,0,\ne,4000,1024,1,300,\n"
)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_small.csv").write_text(PODS)
    with gzip.open(tmp_path / "openb_pod_list_again.csv.gz", "wt") as file:
        file.write(PODS)
    (tmp_path / "published_fgd_alloc_median.csv").write_text(
        "trace,policy,90,100\nsmall,05-BestFit,1,2\nsmall,06-FGD,3,87.65\n"
    )
    return tmp_path


def measure(*arguments: object) -> None:
    assert main([str(one) for one in arguments]) == 0


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as raised:
        measure(*arguments)
    assert raised.value.code == 2
    return capsys.readouterr().err


def test_a_line_for_each_list_with_both_orders_and_the_published_figure(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(traces, "--seeds", "42-44")
    lines = capsys.readouterr().out.splitlines()

    assert [line.split()[0] for line in lines[1:3]] == ["again", "small"]
    assert lines[0].split()[1:5] == ["as", "listed", "shuffled", "published"]
    assert [line.split()[3] for line in lines[1:3]] == ["-", "87.65"]
    assert all(line.endswith("6 of 6") for line in lines[1:3])
    assert "3 seeds (42 to 44)" in lines[3]


def test_the_figures_are_the_same_every_time(traces: Path, tmp_path: Path) -> None:
    found = []
    for number in range(2):
        path = tmp_path / f"{number}.json"
        measure(traces, "--lists", "small", "--seeds", "42-45", "--json", path)
        (report,) = json.loads(path.read_text())
        found.append(report["orders"])

    assert found[0] == found[1]
    assert [order["order"] for order in found[0]] == ["as listed", "shuffled"]
    runs = found[0][0]["runs"]
    assert [run["seed"] for run in runs] == [42, 43, 44, 45]
    assert all(0 < run["percent"] <= 100 for run in runs)
    assert all(run["placed"] <= run["arrivals"] for run in runs)
    assert len({run["arrivals"] for run in runs}) > 1


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--lists", "small,none"), "No pod list none; there are again, small."),
        (("--seeds", "51-42"), "from 1 to 1000 seeds"),
        (("--seeds", "x"), "is not one seed"),
    ],
)
def test_wrong_options_are_reported(
    traces: Path, arguments: tuple[str, ...], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert want in error_of(capsys, traces, *arguments)


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("openb_pod_list_small.csv", "a,b\n1,2\n", "has no column cpu_milli"),
        ("openb_pod_list_small.csv", PODS + "f,-1,1,1,1000,\n", "line 7: cpu_milli is negative"),
        ("openb_pod_list_small.csv", PODS + "f,1,1,one,1000,\n", "line 7: invalid literal"),
        ("openb_pod_list_small.csv", PODS + "f,1,1,1,1500,\n", "line 7: asks for 1500"),
        ("openb_pod_list_small.csv", PODS.split("\n", maxsplit=1)[0], "holds no row"),
        ("openb_node_list_gpu_node.csv", "sn,gpu\n", "has no column cpu_milli"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    traces: Path, name: str, text: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (traces / name).write_text(text)

    error = error_of(capsys, traces, "--lists", "small")

    assert want in error
    assert name in error


def test_a_wrong_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no openb_pod_list_" in error_of(capsys, tmp_path)
    assert "is no folder" in error_of(capsys, tmp_path / "absent")
    (tmp_path / "openb_pod_list_small.csv").write_text(PODS)
    assert "has no openb_node_list_gpu_node" in error_of(capsys, tmp_path)
