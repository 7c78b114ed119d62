"""People, groups and credentials. Rights follow from groups alone: there are no flags to set."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelect2MultipleWidget

from apps.accounts.models import Credential, GroupInfo, User
from apps.accounts.services.break_glass import break_glass_check
from apps.accounts.services.credentials import credential_revoke
from apps.accounts.services.groups import (
    group_remove,
    group_save,
    memberships_lock,
    user_groups_complete,
    user_groups_set,
)
from apps.accounts.services.people_changes import (
    PLAIN,
    person_activate,
    person_deactivate,
    person_record,
)
from apps.accounts.services.preferences import patterns_checked
from apps.core.admin_base import ReadOnlyAdmin, RpmAdmin, ServiceAdmin
from apps.core.errors import BadInput, Conflict

admin.site.unregister(Group)
# Providers, links and second factors have pages of their own; these would show what is sealed.
for hidden in (EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken):
    if admin.site.is_registered(hidden):
        admin.site.unregister(hidden)

# What the log tells of a change on this site.
TOLD = (*PLAIN, "time_zone", "unix_uid", "unix_gid", "is_service", "redacted_variables")


class PersonForm(UserChangeForm):
    """An account; the list of variables as JSON."""

    def clean_redacted_variables(self) -> list[str]:
        try:
            return patterns_checked(self.cleaned_data["redacted_variables"] or [])
        except BadInput as error:
            raise forms.ValidationError(error.fields["redacted_variables"]) from error


class PasswordForm(AdminPasswordChangeForm):
    """Another password of somebody; the one that alone lets in is not taken away."""

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if not given["set_usable_password"]:
            try:
                break_glass_check(self.user)
            except Conflict as error:
                # The page shows what is wrong at fields only.
                self.add_error("password1", error.detail)
        return given


@admin.register(User)
class UserAdmin(RpmAdmin, DjangoUserAdmin):  # type: ignore[misc,type-arg]  # unfold documents this pair
    """Accounts are ended by taking `is_active` away: their tasks and events keep their owner."""

    form = PersonForm
    add_form = UserCreationForm
    change_password_form = PasswordForm
    list_display = ("username", "email", "first_name", "last_name", "is_active", "is_service")
    list_filter = ("is_active", "is_service", "groups")
    search_fields = ("username", "first_name", "last_name", "email")
    autocomplete_fields = ("groups",)
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (_("Person"), {"fields": (("first_name", "last_name"), "email", "time_zone")}),
        (_("Rights"), {"fields": ("is_active", "is_service", "groups")}),
        (_("On the nodes"), {"fields": (("unix_uid", "unix_gid"),)}),
        (_("Shown to nobody"), {"fields": ("redacted_variables",)}),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (  # type: ignore[assignment]  # unfold says () only
        (None, {"fields": ("username", "email", "password1", "password2")}),
    )
    readonly_fields = ("last_login", "date_joined")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Whether somebody may come in is changed by the services, which end what has to end."""
        # Groups follow in the same transaction.
        memberships_lock()
        if change and obj.is_service:
            break_glass_check(obj)
        wanted = obj.is_active
        if change and not obj.is_service:
            obj.is_active = User.objects.values_list("is_active", flat=True).get(pk=obj.pk)
        super().save_model(request, obj, form, change)
        person_record(
            "person.changed" if change else "person.made",
            actor=_actor(request),
            user=obj,
            before={name: form.initial.get(name) for name in form.changed_data if name in TOLD},
        )
        if wanted != obj.is_active:
            switch = person_activate if wanted else person_deactivate
            switch(actor=_actor(request), user=obj)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        # Without the groups, which the service sets.
        groups = form.cleaned_data.pop("groups", None)
        super().save_related(request, form, formsets, change)
        if groups is None:
            user_groups_complete(user=form.instance)
        else:
            user_groups_set(actor=_actor(request), user=form.instance, groups=groups)

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        obj: object = None,  # noqa: ARG002
    ) -> bool:
        return False


class GroupForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """A group with what it is for and who is in it."""

    description = forms.CharField(required=False, max_length=1000)
    members = forms.ModelMultipleChoiceField(
        queryset=User.objects.order_by("username"),
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
    """Groups without Django's permissions: rights are given on objects."""

    form = GroupForm
    list_display = ("name", "about", "is_built_in")
    list_select_related = ("info",)
    search_fields = ("name",)
    fields = ("name", "description", "members")

    @admin.display(description=_("description"))
    def about(self, group: Group) -> str:
        info = _info(group)
        return info.description if info else ""

    @admin.display(description=_("built in"), boolean=True)
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

    @admin.action(description=_("Revoke the chosen credentials"))
    def revoke(self, request: HttpRequest, queryset: QuerySet[Credential]) -> None:
        for credential in queryset:
            credential_revoke(credential=credential, actor=request.user, is_admin=True)  # type: ignore[arg-type]  # only people enter the admin site
        messages.success(request, "They are refused from now on.")


def _actor(request: HttpRequest) -> User | None:
    return request.user if isinstance(request.user, User) else None


def _info(group: Group) -> GroupInfo | None:
    return getattr(group, "info", None)
