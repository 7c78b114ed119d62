"""What the admin classes of all apps share: rows are shown, or saved through services."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.db import models, transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.admin import ModelAdmin, TabularInline
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.core.admin_form_digest import UncheckedFormSet, form_digest
from apps.core.errors import RpmError, Stale
from apps.core.lock_order import live_configuration_lock

# What the filters of Django's lists ask of a column.
_FILTERS = ("exact", "in", "isnull", "id__exact")


class JsonBox(forms.JSONField):
    """An emptied box takes the default of a new row; no column here is nullable."""

    emptied: Callable[[], Any]

    def to_python(self, value: Any) -> Any:
        sent = super().to_python(value)
        return self.emptied() if sent is None else sent


class RpmAdmin(ModelAdmin):
    """Shows the messages of services that refuse a change, instead of an error page."""

    list_per_page = 50
    show_full_result_count = False
    warn_unsaved_form = True
    # Name of the page that shows a row, and the column whose value is in its address;
    # None where the page shows them all.
    page = ""
    page_argument: str | None = "pk"
    # Amounts and lists are short: one or two lines of JSON.
    formfield_overrides: Any = {  # type: ignore[misc]  # unfold: of the instance
        models.JSONField: {"form_class": JsonBox, "widget": UnfoldAdminTextareaWidget({"rows": 2})}
    }

    def get_view_on_site_url(self, obj: Model | None = None) -> str | None:
        """The page outside the admin site that shows the row; none once it is removed."""
        if not self.page or obj is None or getattr(obj, "removed_at", None) is not None:
            return None
        if self.page_argument is None:
            return reverse(self.page)
        return reverse(self.page, args=[getattr(obj, self.page_argument)])

    def formfield_for_dbfield(
        self, db_field: "models.Field[Any, Any]", request: HttpRequest, **kwargs: Any
    ) -> Any:
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(field, JsonBox):
            field.emptied = db_field.get_default
        return field

    def lookup_allowed(self, lookup: str, value: object, request: Any = None) -> bool:  # noqa: ARG002  # Django's
        """Lists are filtered by what is offered, and by key.

        A filter on another column would reveal its hidden value, character by character.
        """
        names = (*self.get_list_filter(request), self.opts.pk.name)
        return any(lookup in (name, *(f"{name}__{word}" for word in _FILTERS)) for name in names)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        with_row = partial(super().changeform_view, request, object_id, form_url, extra_context)
        return _with_error_message(request, with_row)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, str] | None = None
    ) -> Any:
        return _with_error_message(request, partial(self._changelist, request, extra_context))

    def _changelist(self, request: HttpRequest, extra_context: dict[str, str] | None) -> Any:
        if request.method != "POST":
            return super().changelist_view(request, extra_context)
        # All selected rows change, or none.
        with transaction.atomic():
            return super().changelist_view(request, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> Any:
        return _with_error_message(
            request, partial(super().delete_view, request, object_id, extra_context)
        )


def _with_error_message(request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
    try:
        return view()
    except RpmError as error:
        # The transaction of the view has ended with the error, so nothing is half done.
        messages.error(request, error.detail)
        return HttpResponseRedirect(request.get_full_path())


class ServiceAdmin(RpmAdmin):
    """Saves a row with its inlines in one call of a service.

    Django saves the row, then the inlines. Here nothing is saved until both are known: then
    `save_all` calls one service, so that one change makes one revision and one event.

    A form writes back all that it showed. So it carries a digest of that, and is refused when the
    stored row differs: a corrected description would undo another administrator's change.
    """

    change_form_before_template = "admin/shown.html"  # type: ignore[assignment]  # unfold says None only

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:
        """Call the service; a new row's key must be set on `form.instance`."""
        raise NotImplementedError

    def remove(self, request: HttpRequest, row: Any) -> None:
        """Call the service that removes a row."""
        raise NotImplementedError

    def hold(self) -> None:
        """Lock the row against other writers from the comparison with the form on."""
        live_configuration_lock()

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        if request.method != "POST":
            return super().changeform_view(request, object_id, form_url, extra_context)
        with transaction.atomic():
            self.hold()
            return super().changeform_view(request, object_id, form_url, extra_context)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> HttpResponse:
        inlines = [inline.formset for inline in context["inline_admin_formsets"]]
        # With errors the form stays the one that was opened.
        sent = request.POST.get("shown")
        context["shown"] = sent or form_digest(context["adminform"].form, inlines)
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: object) -> None:
        """Nothing yet: `save_related` follows at once and knows the inlines too."""

    def save_related(
        self,
        request: HttpRequest,
        form: Any,
        formsets: Iterable[Any],
        change: object,
    ) -> None:
        kept = list(formsets)
        if change and request.POST.get("shown") != form_digest(form, kept):
            raise Stale("This has changed since you opened it. Reload the page and try again.")
        for formset in kept:
            # Django's log of the change reads these, which only formset.save() would set.
            formset.new_objects, formset.changed_objects, formset.deleted_objects = [], [], []
        self.save_all(request, form, kept)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        self.remove(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Iterable[Model]) -> None:
        for row in queryset:
            self.remove(request, row)

    def get_deleted_objects(
        self,
        objs: Iterable[Model],
        request: HttpRequest,  # noqa: ARG002  # Django passes it
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Only the rows themselves: what refers to them stays."""
        return [str(row) for row in objs], {}, set(), []


class ReadOnlyAdmin(RpmAdmin):
    """Rows that are only shown, never edited."""

    warn_unsaved_form = False

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  # Django's
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False


class ReadOnlyInline(TabularInline):
    """Rows of another table, shown with the row they belong to."""

    formset = UncheckedFormSet
    extra = 0
    can_delete = False

    def has_add_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False
