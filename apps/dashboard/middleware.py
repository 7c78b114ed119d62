"""Users who need a second factor set it up before anything else."""

from collections.abc import Callable

from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse

Handler = Callable[[HttpRequest], HttpResponse]

# In the session of a user who signed in with a password alone and needs a second factor.
MUST_ENROL = "second_factor.missing"


def second_factor_first(get_response: Handler) -> Handler:
    """Leads such a session to the page of second factors, whatever it asks for."""

    def handle(request: HttpRequest) -> HttpResponse:
        if not _must_enrol(request):
            return get_response(request)
        if request.path.startswith("/api/"):
            sentence = "Set up a second factor in the browser first."
            body = {"code": "second_factor", "detail": sentence, "fields": {}}
            return JsonResponse(body, status=403)
        return redirect("mfa_index")

    return handle


def _must_enrol(request: HttpRequest) -> bool:
    # Programs with credentials have no session: nothing is read for them.
    if not request.COOKIES or not request.session.get(MUST_ENROL):
        return False
    if is_mfa_enabled(request.user, [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]):
        del request.session[MUST_ENROL]
        return False
    request.must_enrol = True  # type: ignore[attr-defined]  # the page says so
    return not request.path.startswith((reverse("mfa_index"), reverse("sign_out")))
