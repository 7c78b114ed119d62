"""The components of the pages: one tag, one template under `templates/components/`."""

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import template
from django.contrib.messages.storage.base import Message
from django.http import Http404
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from apps.core.units import amount_text, amounts_text, milli_text
from apps.dashboard.cards import words
from apps.dashboard.render import card_render
from apps.dashboard.selectors.pools import PoolFacts
from apps.dashboard.toasts import undo_of
from apps.nodes.selectors import ShareEnforcement

register = template.Library()

GLYPHS = {"pool": "server", "profile": "box", "policy": "users", "queue": "list-ordered"}


@register.inclusion_tag("components/icon.html")
def icon(name: str, size: str = "") -> dict[str, str]:
    """A lucide icon of `static/src/icons.txt`; `size` is empty (16), `sm` (14) or `xs` (12)."""
    return {"name": name, "size": size}


@register.inclusion_tag("components/undo.html", takes_context=True)
def undo_button(context: dict[str, Any], message: Message) -> dict[str, Any]:
    """The way back from what a message says, where there is one."""
    return {"undo": undo_of(message), "csrf_token": context.get("csrf_token")}


@register.inclusion_tag("components/glyph.html")
def glyph(kind: str) -> dict[str, str]:
    """What a thing is: `pool`, `profile`, `policy` or `queue`, with its colour and icon."""
    return {"kind": "wait" if kind == "queue" else kind, "icon": GLYPHS[kind]}


@register.inclusion_tag("components/bar.html")
def usage_bar(bar: Any, size: str = "") -> dict[str, Any]:
    """A `cards.bars.UsageBar`; `size` is empty (8 px), `lg` or `xs`."""
    return {"bar": bar, "size": size}


@register.inclusion_tag("components/gauge.html")
def gauge(gauge: Any, width: int = 112) -> dict[str, Any]:
    """A `cards.bars.Gauge`."""
    return {"gauge": gauge, "width": width}


@register.inclusion_tag("components/drift.html")
def drift_chips(facts: PoolFacts) -> dict[str, Any]:
    """In what a pool's nodes differ from what is configured; nothing where they do not."""
    differences = [
        {
            "code": one.code,
            "sentence": one.sentence,
            "wanted": amount_text(one.key, one.configured),
            "there": amount_text(one.key, one.found),
        }
        for one in facts.served.differences
    ]
    return {"differences": differences, "models": len(facts.served.models)}


@register.inclusion_tag("components/shares.html")
def shares_line(shares: ShareEnforcement) -> dict[str, Any]:
    """Whether nodes enforce the share of a GPU that a task has, and how."""
    word = words.shares_word(memory=shares.memory, compute=shares.compute, methods=shares.methods)
    return {"sign": word.icon, "words": word.text, "detail": shares.detail}


@register.inclusion_tag("components/state.html")
def task_state(state: str, *, is_chip: bool = False) -> dict[str, Any]:
    """A task's state: icon and word; with `is_chip` on a soft ground."""
    return {"word": words.TASK_STATES[state], "is_chip": is_chip}


@register.inclusion_tag("components/state.html")
def node_state(state: str, *, is_chip: bool = False) -> dict[str, Any]:
    """A node's state: icon and word."""
    return {"word": words.NODE_STATES[state], "is_chip": is_chip}


@register.inclusion_tag("components/reason_chip.html")
def reason_chip(code: str) -> dict[str, Any]:
    """The dominant reason of a waiting task, as a chip."""
    return {"word": words.REASONS.get(code, words.UNKNOWN_REASON)}


@register.inclusion_tag("components/figure.html")
def figure(name: str, text: object, query: str = "") -> dict[str, Any]:
    """A figure; with `query` a link to the tasks that it counts, of which the reader sees all."""
    return {"name": name, "text": text, "query": query}


@register.inclusion_tag("components/pool_usage.html")
def pool_usage(facts: PoolFacts, is_admin: bool) -> dict[str, Any]:  # noqa: FBT001  # as tags are
    """What is used of a pool; administrators, who see every task, get links to the tasks."""
    pk = facts.pool.pk

    def query(quota: str) -> str:
        return task_query("running", pool=pk, quota=quota) if is_admin else ""

    return {
        "facts": facts,
        "res_name": f"p-res-{pk}",
        "res_query": query("reserved"),
        "over_name": f"p-over-{pk}",
        "over_query": query("over"),
    }


@register.simple_block_tag
def capture(content: str) -> SafeString:
    """A text that a component gets: `{% capture as title %}No task of {{ name }}{% endcapture %}`.

    It may run over several lines: they are joined by single spaces.
    """
    return mark_safe(" ".join(content.split()))  # noqa: S308  # rendered by a template, which escapes


@register.simple_tag
def task_query(view: str, **values: object) -> str:
    """The query string of the list of tasks, as `TaskFilter` reads it."""
    return urlencode({"view": view, **values})


@register.inclusion_tag("components/counts.html")
def run_wait(
    running: int,
    waiting: int,
    *,
    is_small: bool = False,
    query: str = "",
    waiting_query: str = "",
) -> dict[str, Any]:
    """How many run and how many wait; with `query`, such as `policy=3`, links to these tasks.

    `waiting_query` is for figures that count the waiting ones by something else.
    """
    return {
        "running": running,
        "waiting": waiting,
        "is_small": is_small,
        "query": query,
        "waiting_query": waiting_query or query,
    }


@register.inclusion_tag("components/queue_name.html")
def queue_name(name: str, href: str = "") -> dict[str, str]:
    """A queue's name with a button that copies it."""
    return {"name": name, "href": href}


@register.inclusion_tag("components/copy.html")
def copy_button(text: str, label: str) -> dict[str, str]:
    """A button that copies `text`."""
    return {"text": text, "label": label}


@register.inclusion_tag("components/time.html")
def time_ago(at: datetime | None) -> dict[str, Any]:
    """How long ago, kept true by the browser."""
    return _time(at, "ago")


@register.inclusion_tag("components/time.html")
def time_since(at: datetime | None) -> dict[str, Any]:
    """How long since then, as a duration."""
    return _time(at, "since")


@register.inclusion_tag("components/time.html")
def time_clock(at: datetime | None) -> dict[str, Any]:
    """The clock time; the whole date in the title."""
    return _time(at, "clock")


@register.inclusion_tag("components/time.html")
def time_moment(at: datetime | None) -> dict[str, Any]:
    """A moment to come, to the minute; with the day where it is not today."""
    return _time(at, "moment")


@register.inclusion_tag("components/field.html")
def field(bound: Any) -> dict[str, Any]:
    """A form field with label, help and the sentences of its errors."""
    return {"field": bound}


@register.simple_tag(takes_context=True)
def live_card(context: template.Context, name: str, key: Any = "") -> SafeString:
    """A part of the page that changes by itself; see `apps.dashboard.live`.

    Raises:
        Http404: this person may not see it; the page's own check should have said so before.
    """
    rendered = card_render(name, str(key), context["request"].user)
    if rendered is None:
        raise Http404
    return mark_safe(rendered.html)  # noqa: S308  # rendered by a template, which escapes


@register.filter
def amount(milli: int | None) -> str:
    """Thousandths as people read them; an en dash for none."""
    return "–" if milli is None else milli_text(milli)


@register.filter
def amounts(texts: Mapping[str, str] | None) -> str:
    """Stored amounts in a line: `4 GPU · 32 CPU · 256 GB`."""
    return amounts_text(texts or {})


@register.filter
def duration(value: timedelta | float | None) -> str:
    """`2 h 22 min`; an en dash for none."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return words.duration_text(seconds)


@register.filter
def command(words: Iterable[str]) -> str:
    """A command as a shell would take it, with quotes where words need them."""
    return shlex.join(words)


@register.filter
def initials(name: str) -> str:
    """At most two letters for the avatar of a person."""
    parts = [part for part in name.replace(".", " ").split() if part]
    letters = parts[0][:2] if len(parts) == 1 else "".join(part[0] for part in parts[:2])
    return letters.upper()


def _time(at: datetime | None, shape: str) -> dict[str, Any]:
    if at is None:
        return {"at": None}
    since = words.duration_text((timezone.now() - at).total_seconds())
    day = "" if at.date() == timezone.now().date() else f"{at:%-d %b}, "
    texts = {
        "ago": f"{since} ago",
        "since": since,
        "clock": f"{at:%H:%M:%S}",
        "moment": f"{day}{at:%H:%M}",
    }
    return {"at": at, "format": shape, "text": texts[shape]}
