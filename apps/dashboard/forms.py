"""Forms; services validate them, and each error is shown at its field."""

from django import forms
from django.contrib.auth.forms import AuthenticationForm

from apps.core.errors import RpmError
from apps.dashboard.forms_base import PageForm


class SignInForm(PageForm, AuthenticationForm):
    """Name and password."""

    error_messages = {
        "invalid_login": "Username or password is wrong. Check both and try again.",
        "inactive": "Username or password is wrong. Check both and try again.",
    }

    def focus_password(self) -> None:
        """After a wrong try the name usually stays, and the password is typed again."""
        if self.data.get("username"):
            self.fields["username"].widget.attrs.pop("autofocus", None)
            self.fields["password"].widget.attrs["autofocus"] = True


class SetUpForm(PageForm):
    """The first administrator of an empty installation."""

    token = forms.CharField(
        label="Set-up token",
        help_text="Printed where RPM was started; it works once.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none"}),
    )
    email = forms.EmailField(label="E-mail address", required=False)
    password = forms.CharField(
        label="Password",
        strip=False,
        help_text="At least 8 characters, and no common word.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


def focus_first_error(form: forms.Form) -> None:
    """Put the cursor where something has to be changed."""
    for name in form.fields:
        if name in form.errors:
            form.fields[name].widget.attrs["autofocus"] = True
            return


def add_errors(form: forms.Form, error: RpmError) -> None:
    """Show each error at the field that it names; others above the form."""
    near = {"request": "gpu", "time_limit_s": "time_limit_min", "metadata": "metadata_file"}
    near |= {"valid_from": "day", "abort_callback": "abort_script"}
    near |= {"array": "array_size", "array.limit": "array_limit"}
    near |= {"abort_callback.timeout_s": "abort_timeout_s"}
    is_placed = False
    for name, problem in error.fields.items():
        first = name.partition(".")[0]
        place = name if name in form.fields else near.get(name, near.get(first, first))
        if place in form.fields:
            form.add_error(place, problem[:1].upper() + problem[1:])
            is_placed = True
    if not is_placed:
        form.add_error(None, error.detail)
