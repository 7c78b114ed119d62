"""Random characters of a page are no words."""

import pytest
from django.template import engines
from django.test import RequestFactory

from tests.page_words import without_random, without_tokens, words_on

TOKEN = "aDev1137" + "x" * 56
UUID = "0192adec-1137-7b0b-8abc-0123456789ab"


@pytest.mark.parametrize(
    "random",
    [
        f'<input type="hidden" name="csrfmiddlewaretoken" value="{TOKEN}">',
        f'<main data-csrf="{TOKEN}">',
        f"""<body hx-headers='{{"X-CSRFToken": "{TOKEN}"}}'>""",
        f'{{"csrf": "{TOKEN}"}}',
        f"{{'Set-Cookie': 'csrftoken={TOKEN}; Path=/'}}",
        f'<script nonce="{TOKEN}">',
        f"script-src 'nonce-{TOKEN}'",
        f'{{"request_id": "{TOKEN}"}}',
        f"{{'X-Request-ID': '{TOKEN}'}}",
        f'<a href="/tasks/{UUID}/">',
        f'<div data-version="{UUID.replace("-", "")[:16]}">',
    ],
)
def test_short_words_in_random_characters_are_not_on_the_page(random: str) -> None:
    assert "1137" in random
    assert words_on(random, "Dev", "1137") == []
    assert words_on(f"Dev {random} 1137", "Dev", "1137") == ["Dev", "1137"]


def test_the_token_of_a_form_is_random() -> None:
    form = engines["django"].from_string("<form>{% csrf_token %}<b>1</b></form>")

    pages = [form.render({}, RequestFactory().get("/")) for _ in range(2)]

    assert pages[0] != pages[1]
    assert len({without_tokens(page) for page in pages}) == 1
    assert words_on(pages[0], "<b>1</b>", *"0123456789") == ["<b>1</b>", "1"]


def test_a_long_word_is_looked_for_everywhere() -> None:
    assert words_on(f"<i>{UUID}</i> nonce-{TOKEN}", UUID, TOKEN) == [UUID, TOKEN]


def test_what_is_around_random_characters_stays() -> None:
    page = f'<a href="/tasks/{UUID}/log" title="csrf 7">bob</a> 1137'

    assert without_random(page) == '<a href="/tasks//log" title="csrf 7">bob</a> 1137'
