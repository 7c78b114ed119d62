"""Registry credentials of groups: their passwords are entered here and never shown."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminPasswordWidget

from apps.core.admin_base import ServiceAdmin
from apps.core.keyring import HIDDEN
from apps.policies.models import RegistryCredential
from apps.policies.services import registry_credential_remove, registry_credential_save


class RegistryCredentialForm(forms.ModelForm):  # type: ignore[type-arg]  # not at run time
    """Shows the password as stars; a password that comes back as stars stays as it is."""

    password = forms.CharField(
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}, render_value=True),
        help_text="Stored sealed, and never shown again.",
    )

    class Meta:
        model = RegistryCredential
        fields = ("group", "registry", "username")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            self.fields["password"].initial = HIDDEN
        if self.is_bound and self.data.get("password") not in ("", HIDDEN, None):
            # A typed password is not sent back with the errors of other fields.
            self.fields["password"].widget.render_value = False


@admin.register(RegistryCredential)
class RegistryCredentialAdmin(ServiceAdmin):
    form = RegistryCredentialForm
    list_display = ("registry", "group", "username", "changed_at")
    list_select_related = ("group",)
    list_filter = ("group",)
    search_fields = ("registry", "group__name", "username")
    autocomplete_fields = ("group",)
    fields = ("group", "registry", "username", "password")

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        actor: Any = request.user
        # The form has written the typed values into its row; the service reads the stored ones.
        credential = form.instance if form.instance.pk is not None else None
        names = ("group", "registry", "username", "password")
        values = {name: form.cleaned_data[name] for name in names}
        saved = registry_credential_save(actor=actor, credential=credential, **values)
        form.instance.pk = saved.pk

    def remove(self, request: HttpRequest, row: RegistryCredential) -> None:
        registry_credential_remove(actor=request.user, credential=row)  # type: ignore[arg-type]  # only people enter the admin site
