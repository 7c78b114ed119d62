"""What the pages ask for is there, and what is locked is locked without addresses."""

import json
import re
from pathlib import Path

from apps.dashboard.cards import timeline, words
from apps.dashboard.context import _PAGES
from apps.dashboard.templatetags.components import GLYPHS
from tools import assets

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
JS = ROOT / "static" / "src" / "js"


def listed() -> set[str]:
    return set((ROOT / "static" / "src" / "icons.txt").read_text(encoding="utf-8").split())


def named_icons() -> set[str]:
    """Every icon that a template or a table names."""
    found: set[str] = set(GLYPHS.values()) | {icon for _, _, icon, _ in _PAGES} | {"settings"}
    tables = (words.TASK_STATES, words.ATTEMPT_STATES, words.NODE_STATES, words.REASONS)
    for table in tables:
        found |= {word.icon for word in table.values()}
    found |= {icon for _, icon, _ in timeline.TASK_EVENTS.values()}
    for template in TEMPLATES:
        text = template.read_text(encoding="utf-8")
        found |= set(re.findall(r'{% icon "([a-z0-9-]+)"', text))
        found |= set(re.findall(r'icon="([a-z0-9-]+)"', text))
    return found


def test_every_icon_that_is_shown_is_in_the_sprite() -> None:
    assert named_icons() - listed() == set()


def test_every_behaviour_that_a_template_names_has_a_module() -> None:
    names = {
        name
        for template in TEMPLATES
        for value in re.findall(r'data-behaviour="([^"]+)"', template.read_text(encoding="utf-8"))
        for name in value.split()
    }

    assert names
    assert [name for name in sorted(names) if not (JS / f"{name}.js").exists()] == []


def test_every_card_that_a_template_names_is_registered_and_has_its_template() -> None:
    named = re.compile(r'(?:{% live_card |data-live=)"(\w+)"')
    from_pages = {
        name
        for template in TEMPLATES
        for name in named.findall(template.read_text(encoding="utf-8"))
    }

    assert from_pages == {path.stem for path in (ROOT / "templates" / "cards").glob("*.html")}


def test_the_lock_names_versions_and_hashes_and_no_address() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}

    assert all("version" in one for one in packages.values())
    assert not [name for name, one in packages.items() if "resolved" in one]
    without_hash = [name for name, one in packages.items() if "integrity" not in one]
    assert [name for name in without_hash if not packages[name].get("optional")] == []


def test_the_build_depends_on_templates_and_sources() -> None:
    files = assets.inputs()

    assert ROOT / "templates" / "base.html" in files
    assert ROOT / "static" / "src" / "app.css" in files
    assert assets.digest(files) == assets.digest(files)
    assert assets.digest(files) != assets.digest(files[1:])
