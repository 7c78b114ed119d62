import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import compose

Change = Callable[[dict[str, Any]], None]


def committed() -> dict[str, Any]:
    document = yaml.safe_load(compose.FILE.read_text())
    assert isinstance(document, dict)
    return document


def test_the_committed_file_is_fine() -> None:
    assert list(compose.problems_of(committed(), folder=compose.FILE.parent)) == []


def test_the_committed_file_has_every_process_and_checks_its_health() -> None:
    services = committed()["services"]

    want = {"proxy", "web", "sockets", "streams", "nodes", "worker", "beat", "migrate"}
    assert set(services) == want | {"postgres", "redis"}
    assert {name for name in services if "healthcheck" not in services[name]} == {"migrate"}


def test_what_asks_other_machines_leaves_by_a_network_and_nothing_else_does() -> None:
    document = committed()
    leaving = {name for name, found in document["networks"].items() if not found.get("internal")}
    services = document["services"]
    ours = {name for name in services if "build" in services[name]}

    out = {name for name in ours if leaving & set(services[name]["networks"])}

    assert out == {"web", "streams", "nodes", "worker"}
    # The network for outgoing connections admits no incoming ones.
    assert not leaving & set(services["web"]["networks"]) & set(services["proxy"]["networks"])
    wanted = [{"path": "rpm.env", "required": False}]
    assert all(services[name]["env_file"] == wanted for name in ours)


def change_image(document: dict[str, Any]) -> None:
    document["services"]["redis"]["image"] = "registry.example.org/redis:8"


def change_dependency(document: dict[str, Any]) -> None:
    document["services"]["web"]["depends_on"]["cache"] = {"condition": "service_started"}


def change_health(document: dict[str, Any]) -> None:
    del document["services"]["redis"]["healthcheck"]


def change_volume(document: dict[str, Any]) -> None:
    del document["volumes"]["database"]


def change_mount(document: dict[str, Any]) -> None:
    document["services"]["proxy"]["volumes"].append("./absent:/srv")


def change_key(document: dict[str, Any]) -> None:
    document["services"]["web"]["comand"] = ["true"]


def change_port(document: dict[str, Any]) -> None:
    document["services"]["proxy"]["ports"] = ["eighty:80"]


def change_variable(document: dict[str, Any]) -> None:
    document["services"]["beat"]["environment"]["RPM_HOSTS"] = "$(hostname)"


def change_number(document: dict[str, Any]) -> None:
    document["services"]["beat"]["environment"]["RPM_DEBUG"] = False


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            change_image,
            "redis: image 'registry.example.org/redis:8' is not a plain name",
            id="an image from a named registry",
        ),
        pytest.param(
            change_dependency,
            "web: depends on 'cache', which is not there",
            id="a dependency that is not there",
        ),
        pytest.param(
            change_health,
            "web: waits for 'redis' to be healthy, which has no health check",
            id="waiting for health that nobody checks",
        ),
        pytest.param(
            change_volume,
            "postgres: mounts the volume 'database', which is not declared",
            id="a volume that is not declared",
        ),
        pytest.param(
            change_mount, "proxy: mounts ./absent, which is not there", id="a file that is absent"
        ),
        pytest.param(change_key, "web: unknown key 'comand'", id="a slip of the pen"),
        pytest.param(
            change_port,
            "proxy: port 'eighty:80' is not [address:]port:port in quotes",
            id="a port that is none",
        ),
        pytest.param(
            change_variable,
            "cannot read the variable in '$(hostname)'",
            id="a variable that Docker would not read",
        ),
        pytest.param(
            change_number,
            "beat: environment RPM_DEBUG must be text in quotes, not False",
            id="a value that is no text",
        ),
    ],
)
def test_a_slip_is_named(change: Change, want: str) -> None:
    document = copy.deepcopy(committed())
    # YAML's aliases share their parts: give every service parts of its own.
    document = yaml.safe_load(yaml.dump(document, Dumper=NoAliases))

    change(document)

    assert want in compose.problems_of(document, folder=compose.FILE.parent)


def test_a_file_that_is_no_yaml_fails(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("services: [")

    assert compose.main(path) == 1


class NoAliases(yaml.SafeDumper):
    """Writes shared parts out in full."""

    def ignore_aliases(self, data: object) -> bool:
        return True
