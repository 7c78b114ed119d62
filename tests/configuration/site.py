"""The admin site as browsers use it: addresses, and what a form would send back."""

from typing import Any

from django.forms import BaseFormSet, BaseModelForm
from django.test import Client
from django.urls import reverse


def url(model: Any, page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def form_of(client: Client, address: str) -> dict[str, Any]:
    """What the browser would send back from a page, unchanged."""
    context = client.get(address).context
    data: dict[str, Any] = {"shown": context.get("shown", "")}
    forms: list[BaseModelForm[Any]] = [context["adminform"].form]
    for inline in context["inline_admin_formsets"]:
        formset: BaseFormSet[Any] = inline.formset
        forms += [formset.management_form, *formset.forms]  # type: ignore[list-item]  # a form too
    for form in forms:
        for field in form:
            value = field.value()
            if value is not None and value is not False:
                data[field.html_name] = "on" if value is True else value
    return data
