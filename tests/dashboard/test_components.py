"""Tags of the components of pages."""

from django.template import Context, Template


def test_a_captured_text_is_one_line_and_escaped_once() -> None:
    source = """{% load components %}{% capture as title %}
        No task matches
        “{{ name }}”
    {% endcapture %}{{ title }}"""

    rendered = Template(source).render(Context({"name": "<b>"}))

    assert rendered == "No task matches “&lt;b&gt;”"
