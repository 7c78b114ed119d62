"""`make audit`: licences and known vulnerabilities of everything this depends on.

    python -m tools.audit                 both
    python -m tools.audit --licences      only the table, without a network

Status 1: something is wrong. Status 3: nothing wrong was found, but a registry did not answer, so
the list of vulnerabilities is not complete.
"""

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.packages import find_program

ROOT = Path(__file__).resolve().parent.parent
NO_ANSWER = 3
OWN = "resource-policy-manager"
# Texts of the field `License` that are a whole licence, not its name.
LONGEST_NAME = 80
_CLASSIFIER = "License :: OSI Approved :: "


@dataclass(frozen=True, slots=True)
class Package:
    """One dependency; `licence` is empty where it names none."""

    origin: str
    name: str
    version: str
    licence: str


def main(arguments: list[str]) -> int:
    wrong = licences()
    if "--licences" in arguments:
        return 1 if wrong else 0
    found = [python_vulnerabilities(), npm_vulnerabilities()]
    if wrong or 1 in found:
        return 1
    return NO_ANSWER if NO_ANSWER in found else 0


def licences() -> int:
    """Print the table, and what of it is not allowed; the number of those."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "rpm-audit"
    ]
    allowed, accepted = set(rules["allowed"]), dict(rules["accepted"])
    packages = sorted([*python_packages(), *npm_packages()], key=lambda one: (one.origin, one.name))
    wrong = 0
    for one in packages:
        problem = problem_of(one.licence, allowed)
        is_accepted = one.name in accepted
        wrong += bool(problem) and not is_accepted
        mark = f"  <- {accepted[one.name] if is_accepted else problem}" if problem else ""
        print(f"{one.origin:<7} {one.name:<34} {one.version:<16} {one.licence or 'unknown'}{mark}")
    print(f"\n{len(packages)} packages, {wrong} to check.")
    return wrong


def problem_of(licence: str, allowed: set[str]) -> str:
    """What is wrong with a licence expression; empty where all of it is allowed."""
    if not licence:
        return "names no licence"
    # Of alternatives one is enough; of what holds together all must be allowed.
    for alternative in re.split(r"\s+OR\s+|\s*/\s*", licence):
        parts = re.split(r"\s+AND\s+|\s*[,;]\s*", alternative)
        if all(part in allowed or part.strip(" ()") in allowed for part in parts):
            return ""
    return "not on the list of pyproject.toml"


def python_packages() -> Iterator[Package]:
    for one in importlib.metadata.distributions():
        facts = one.metadata
        if facts["Name"] and facts["Name"] != OWN:
            yield Package("python", facts["Name"], one.version, _python_licence(facts))


def _python_licence(facts: importlib.metadata.PackageMetadata) -> str:
    if "License-Expression" in facts:
        return facts["License-Expression"]
    classifiers = [
        text.removeprefix(_CLASSIFIER)
        for text in facts.get_all("Classifier") or []
        if text.startswith(_CLASSIFIER)
    ]
    if classifiers:
        return ", ".join(classifiers)
    named = facts["License"].strip() if "License" in facts else ""
    return named if len(named) <= LONGEST_NAME and "\n" not in named else ""


def npm_packages() -> Iterator[Package]:
    locked = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    for path, facts in locked["packages"].items():
        if not path:
            continue
        installed = ROOT / path / "package.json"
        if not installed.exists() and facts.get("optional"):
            # For machines of another kind.
            continue
        manifest = (
            json.loads(installed.read_text(encoding="utf-8")) if installed.exists() else facts
        )
        licence = manifest.get("license") or ""
        named = licence.get("type", "") if isinstance(licence, dict) else str(licence)
        name = path.rpartition("node_modules/")[2]
        yield Package("npm", name, str(manifest.get("version", "")), named)


def python_vulnerabilities() -> int:
    """By pip-audit, run outside the project; it asks the registry's own list."""
    print("\nPython, known vulnerabilities:", flush=True)
    runner = find_program("uvx") or str(Path(sys.executable).parent / "uvx")
    command = [runner, "pip-audit", "--progress-spinner=off", "--disable-pip", "--no-deps"]
    locks = ["-r", "requirements/dev.txt"]
    return _run_audit([*command, *locks], is_bad=re.compile(r"Found \d+ known vulnerabilit"))


def npm_vulnerabilities() -> int:
    print("\nnpm, known vulnerabilities:", flush=True)
    npm = shutil.which("npm")
    if npm is None:
        print("There is no npm on the PATH.")
        return NO_ANSWER
    return _run_audit([npm, "audit"], is_bad=re.compile(r"\d+ .*vulnerabilit(y|ies)"))


def _run_audit(command: list[str], *, is_bad: re.Pattern[str]) -> int:
    """The output of the program; without a word of vulnerabilities the registry was silent."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"It cannot be asked: {type(error).__name__}.")
        return NO_ANSWER
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode == 0:
        print("none")
        return 0
    if is_bad.search(said):
        print(said.strip())
        return 1
    words = next((line for line in said.splitlines() if "error" in line.lower()), "no words")
    print(f"The registry did not answer: {words.strip()[:200]}")
    return NO_ANSWER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
