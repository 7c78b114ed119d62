"""What tests read from answers with forms, and what they send back."""

import re

from apps.policies.models import Policy


def text(response: object) -> str:
    """The page as somebody reads it: without tags, spaces folded."""
    html = response.content.decode()  # type: ignore[attr-defined]  # Django's test response
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def folded(html: str) -> str:
    """The HTML in one line, with single spaces between attributes and none before `>`."""
    return re.sub(r"\s+>", ">", " ".join(html.split()))


def changed_form(policy: Policy, **changes: str) -> dict[str, str]:
    """What the form of the policy sends when only `changes` are typed."""
    given = {
        "name": policy.name,
        "group": str(policy.group_id),
        "parent": "",
        "description": policy.description,
        "reserved.gpu": "8",
        "limit.gpu": "16",
        "weight": "1",
    }
    return given | changes


def errors_at(field: str, answer: object) -> str:
    """The sentences that stand at a field of a form."""
    html = answer.content.decode()  # type: ignore[attr-defined]  # Django's test response
    found = re.search(rf'(?s)id="[a-z]+_{re.escape(field)}_error">(.*?)</ul>', html)
    return found[1] if found else ""


def shown(answer: object) -> dict[str, str]:
    """The first form with a name on a page as a browser would send it, hidden fields included."""
    html = answer.content.decode()  # type: ignore[attr-defined]  # Django's test response
    tags = re.findall(r"<input[^>]*>", html)
    pairs = [
        (re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)) for tag in tags
    ]
    return {
        name[1]: value[1] if value else ""
        for (name, value), tag in zip(pairs, tags, strict=True)
        if name and "checkbox" not in tag
    }
