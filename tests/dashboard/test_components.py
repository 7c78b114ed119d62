"""Tags of the components of pages."""

import re

from django.conf import settings
from django.template import Context, Template


def test_a_captured_text_is_one_line_and_escaped_once() -> None:
    source = """{% load components %}{% capture as title %}
        No task matches
        “{{ name }}”
    {% endcapture %}{{ title }}"""

    rendered = Template(source).render(Context({"name": "<b>"}))

    assert rendered == "No task matches “&lt;b&gt;”"


def test_every_dialog_is_left_by_the_same_word() -> None:
    """*Cancel*; *Close* where there is nothing to do."""
    left = {
        word
        for template in (settings.BASE_DIR / "templates").rglob("*.html")
        for word in re.findall(r"data-close(?: autofocus)?>\s*([\w ]+?)\s*<", template.read_text())
    }

    assert left == {"Cancel", "Close"}
