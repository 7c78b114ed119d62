"""People, groups and credentials. Permissions follow from groups alone: no flags to set."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from unfold.forms import UserCreationForm
from unfold.widgets import UnfoldAdminSelect2MultipleWidget

from apps.accounts.models import (
    Credential,
    GroupInfo,
    IdentityProvider,
    LogInRules,
    Tenant,
    TenantGroup,
    User,
)
from apps.accounts.services.credentials import credential_revoke
from apps.accounts.services.groups import group_remove, group_save
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import email_check, person_record
from apps.accounts.services.people_settings import person_set
from apps.accounts.services.preferences import patterns_clean
from apps.accounts.services.profile import time_zone_check
from apps.core.admin_base import ReadOnlyAdmin, ReadOnlyInline, ServiceAdmin
from apps.core.errors import BadInput

admin.site.unregister(Group)
# Providers, links and second factors have pages of their own; these would show what is sealed.
for hidden in (EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken):
    if admin.site.is_registered(hidden):
        admin.site.unregister(hidden)


class _AddressForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """Refuses an address that another person has."""

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        if email:
            with _errors_at("email"):
                email_check(email, user=self.instance)
        return email


class NewPersonForm(_AddressForm, UserCreationForm):
    """A new person, with a password."""


class PersonForm(_AddressForm):
    """An account; the list of variables as JSON."""

    def clean_time_zone(self) -> str:
        zone: str = self.cleaned_data["time_zone"]
        with _errors_at("time_zone"):
            time_zone_check(zone)
        return zone

    def clean_redacted_variables(self) -> list[str]:
        with _errors_at("redacted_variables"):
            given = self.cleaned_data["redacted_variables"]
            return patterns_clean(given, stored=self.instance.redacted_variables)


@contextmanager
def _errors_at(field: str) -> Iterator[None]:
    """Show a service's refusal at the field of the form."""
    try:
        yield
    except BadInput as error:
        raise forms.ValidationError(error.fields[field]) from error


@admin.register(User)
class UserAdmin(ServiceAdmin):
    """People. Service accounts are shown, and changed on a page of their own.

    Accounts are deactivated by clearing `is_active`: their tasks and events keep their owner.
    Another password is set by a link, which the page of the person makes.
    """

    page = "person_detail"
    form = PersonForm
    list_display = ("username", "email", "first_name", "last_name", "is_active", "is_service")
    list_filter = ("is_active", "is_service", "groups")
    search_fields = ("username", "first_name", "last_name", "email")
    ordering = ("username",)
    autocomplete_fields = ("groups",)
    fieldsets = (
        (None, {"fields": ("username",)}),
        ("Person", {"fields": (("first_name", "last_name"), "email", "time_zone")}),
        ("Permissions", {"fields": ("is_active", "is_service", "groups")}),
        ("On the nodes", {"fields": (("unix_uid", "unix_gid"),)}),
        ("Shown to nobody", {"fields": ("redacted_variables",)}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (  # type: ignore[assignment]  # unfold says () only
        (None, {"fields": ("username", "email", "password1", "password2")}),
    )
    readonly_fields = ("is_service", "last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        kept: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return kept

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: Any = False,  # noqa: FBT002  # Django's signature
        **kwargs: Any,
    ) -> Any:
        if obj is None:
            kwargs["form"] = NewPersonForm
        return super().get_form(request, obj, change, **kwargs)

    @method_decorator(sensitive_post_parameters("password1", "password2"))
    def changeform_view(self, *args: Any, **kwargs: Any) -> Any:
        return super().changeform_view(*args, **kwargs)

    def get_view_on_site_url(self, obj: Any = None) -> str | None:
        if obj is not None and obj.is_service:
            return reverse("service_account", args=[obj.pk])
        return super().get_view_on_site_url(obj)

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        actor, values = _actor(request), form.cleaned_data
        if form.instance.pk is not None:
            person_set(actor=actor, user=form.instance, changes=values)
            return
        made = user_create(
            username=values["username"], email=values["email"], password=values["password1"]
        )
        person_record("person.made", actor=actor, user=made, before={})
        form.instance.pk = made.pk

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and obj.is_service:
            return False
        return super().has_change_permission(request, obj)

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: object = None,  # noqa: ARG002
    ) -> bool:
        return False


class GroupForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """A group with its description and members."""

    description = forms.CharField(required=False, max_length=1000)
    members = forms.ModelMultipleChoiceField(
        queryset=User.objects.filter(removed_at__isnull=True).order_by("username"),
        required=False,
        widget=UnfoldAdminSelect2MultipleWidget(),
    )

    class Meta:
        model = Group
        fields = ("name",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        group: Group = self.instance
        if group.pk is not None:
            info = GroupInfo.objects.filter(group=group).first()
            self.fields["description"].initial = info.description if info else ""
            self.fields["members"].initial = User.objects.filter(groups=group)


@admin.register(Group)
class GroupAdmin(ServiceAdmin):
    """Groups without Django's permissions: permissions are given on objects."""

    form = GroupForm
    list_display = ("name", "about", "is_built_in")
    list_select_related = ("info",)
    search_fields = ("name",)
    fields = ("name", "description", "members")

    @admin.display(description="description")
    def about(self, group: Group) -> str:
        info = _info(group)
        return info.description if info else ""

    @admin.display(description="built in", boolean=True)
    def is_built_in(self, group: Group) -> bool:
        info = _info(group)
        return info is not None and info.is_built_in

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        group_save(
            actor=_actor(request),
            group=form.instance,
            description=form.cleaned_data["description"],
            members=list(form.cleaned_data["members"]),
        )

    def remove(self, request: HttpRequest, row: Group) -> None:
        group_remove(actor=_actor(request), group=row)


@admin.register(Credential)
class CredentialAdmin(ReadOnlyAdmin):
    list_display = (
        "key",
        "user",
        "label",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    list_select_related = ("user",)
    search_fields = ("key", "label", "user__username")
    fields = list_display
    actions = ("revoke",)

    @admin.action(description="Revoke the chosen credentials")
    def revoke(self, request: HttpRequest, queryset: QuerySet[Credential]) -> None:
        for credential in queryset:
            credential_revoke(credential=credential, actor=request.user, is_admin=True)  # type: ignore[arg-type]  # only people enter the admin site
        messages.success(request, "They are refused from now on.")


@admin.register(IdentityProvider)
class IdentityProviderAdmin(ReadOnlyAdmin):
    """Without what is sealed; providers are tested and changed on a page of their own."""

    list_display = ("name", "protocol", "is_active", "creates_people", "syncs_groups", "updated_at")
    list_filter = ("protocol", "is_active")
    search_fields = ("name", "slug")
    fields = (*list_display, "slug", "preset", "requires_verified_email", "created_at")
    page, page_argument = "identity_edit", "slug"


@admin.register(LogInRules)
class LogInRulesAdmin(ReadOnlyAdmin):
    """Changed on a page of its own, which checks that an administrator can still log in."""

    list_display = ("id", "allows_passwords", "break_glass", "requires_second_factor")
    list_select_related = ("break_glass",)
    list_filter = ("allows_passwords", "requires_second_factor")
    search_fields = ("=id",)
    fields = (*list_display, "second_factor_groups")
    page, page_argument = "log_in_settings", None


class GroupsOfTenant(ReadOnlyInline):
    model = TenantGroup
    fields = ("group",)
    verbose_name_plural = "groups"


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    """The tree of a tenant is that of its top policy; a page of its own changes it."""

    list_display = ("id", "admin_group", "created_at")
    list_select_related = ("admin_group",)
    list_filter = ("admin_group",)
    search_fields = ("=id", "admin_group__name", "belonging__group__name")
    fields = list_display
    inlines = (GroupsOfTenant,)
    page = "tenant_edit"


def _actor(request: HttpRequest) -> User | None:
    return request.user if isinstance(request.user, User) else None


def _info(group: Group) -> GroupInfo | None:
    return getattr(group, "info", None)
