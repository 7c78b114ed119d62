"""People sign in first by a link that works once."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from apps.accounts.models import Invitation, MailState, User
from apps.accounts.services.invitations import (
    NewInvitation,
    invitation_accept,
    invitation_by_token,
    invitation_renew,
    invitation_revoke,
    person_invite,
)
from apps.accounts.services.mail import MailNotSent, MailSent, invitations_mail, mail_send_test
from apps.core.errors import BadInput, NotAllowed
from tests.services.smtp import REFUSED, Inbox

pytestmark = pytest.mark.django_db

PASSWORD = "Correct-horse-7-battery"
SITE = "https://rpm.example.org/join/"


def link(token: str) -> str:
    return f"{SITE}{token}/"


def token_of(invited: NewInvitation) -> str:
    return invited.link.removeprefix(SITE).strip("/")


def invite(root: User, **given: object) -> NewInvitation:
    return person_invite(actor=root, address=link, **given)  # type: ignore[arg-type]  # of the test


def test_an_invited_person_waits_until_the_link_is_followed_once(
    root: User, dev_group: Group
) -> None:
    invited = invite(root, email="ada@example.org", groups=[dev_group])
    assert invited.user.status == "pending"
    assert not invited.user.has_usable_password()

    joined = invitation_accept(
        token=token_of(invited), username="ada", first_name="Ada", password=PASSWORD
    )

    assert (joined.status, joined.username, joined.first_name) == ("active", "ada", "Ada")
    assert joined.check_password(PASSWORD)
    assert sorted(group.name for group in joined.groups.all()) == ["Users", "dev"]
    with pytest.raises(NotAllowed):
        invitation_accept(token=token_of(invited), username="eve", password=PASSWORD)


def test_the_token_is_kept_nowhere(root: User) -> None:
    invited = invite(root, username="ada")

    row = Invitation.objects.values().get()

    assert token_of(invited) not in str(row)
    assert row["sealed_link"] == ""


def test_a_link_ends_with_its_time_its_successor_and_its_revocation(root: User) -> None:
    old = invite(root, username="ada")
    new = invitation_renew(actor=root, user=old.user, address=link)
    assert invitation_by_token(token_of(old)) is None
    assert invitation_by_token(token_of(new)) is not None

    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert invitation_by_token(token_of(new)) is None
    last = invitation_renew(actor=root, user=old.user, address=link)
    invitation_revoke(actor=root, user=old.user)

    assert invitation_by_token(token_of(last)) is None
    assert not User.objects.filter(username="ada").exists()


def test_a_link_for_somebody_who_came_already_sets_a_password_and_nothing_else(
    root: User, alice: User
) -> None:
    invited = invitation_renew(actor=root, user=alice, address=link)

    joined = invitation_accept(
        token=token_of(invited), username="eve", first_name="Eve", password=PASSWORD
    )

    assert (joined.username, joined.first_name) == ("alice", "")
    assert joined.check_password(PASSWORD)
    invitation_revoke(actor=root, user=alice)
    assert User.objects.filter(username="alice").exists()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param({}, "username", id="nobody"),
        pytest.param({"email": "ada"}, "email", id="no address"),
        pytest.param({"email": "ROOT@example.org"}, "email", id="somebody else's address"),
        pytest.param({"username": "a b"}, "username", id="a name with a space"),
        pytest.param({"username": "root"}, "username", id="a name that is taken"),
        pytest.param({"username": "ada", "days": 0}, "days", id="no day"),
        pytest.param({"username": "ada", "days": 1000}, "days", id="three years"),
    ],
)
def test_what_is_wrong_with_an_invitation_is_named_and_nobody_is_made(
    root: User, given: dict[str, object], field: str
) -> None:
    User.objects.filter(pk=root.pk).update(email="root@example.org")

    with pytest.raises(BadInput) as refused:
        invite(root, **given)

    assert set(refused.value.fields) == {field}
    assert User.objects.count() == 1


def test_a_weak_password_or_a_taken_name_leaves_the_link_as_it_is(root: User) -> None:
    invited = invite(root, email="ada@example.org")

    with pytest.raises(BadInput) as weak:
        invitation_accept(token=token_of(invited), username="ada", password="password")
    with pytest.raises(BadInput) as taken:
        invitation_accept(token=token_of(invited), username="root", password=PASSWORD)

    assert set(weak.value.fields) == {"password"}
    assert set(taken.value.fields) == {"username"}
    assert invitation_by_token(token_of(invited)) is not None


def test_who_was_invited_and_signs_in_otherwise_has_come(root: User, client: Client) -> None:
    invited = invite(root, username="ada")

    client.force_login(invited.user)

    assert User.objects.get(username="ada").status == "active"
    assert invitation_by_token(token_of(invited)) is None


def test_an_invitation_goes_by_mail_with_its_link_and_leaves_nothing_behind(
    root: User,
    inbox: Inbox,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    with django_capture_on_commit_callbacks() as rings:
        invited = invite(root, email="ada@example.org")
    assert len(rings) >= 1
    assert invited.is_mailed
    assert token_of(invited) not in str(Invitation.objects.values().get())

    assert invitations_mail() == 1

    (mail,) = inbox.messages
    assert mail["To"] == "ada@example.org"
    assert mail["From"] == "rpm@example.org"
    assert invited.link in mail.get_content()
    row = Invitation.objects.get()
    assert (row.mail_state, row.sealed_link) == (MailState.SENT, "")
    assert invitations_mail() == 0


def test_a_mail_that_could_not_be_sent_says_what_the_server_said(root: User, inbox: Inbox) -> None:
    invite(root, email=REFUSED)

    assert invitations_mail() == 0

    row = Invitation.objects.get()
    assert row.mail_state == MailState.FAILED
    assert row.mail_detail == "550 5.1.1 There is nobody of this name here"
    assert row.sealed_link == ""


def test_a_test_mail_tells_what_happened(inbox: Inbox, settings: Settings) -> None:
    assert mail_send_test(to="ada@example.org") == MailSent()

    settings.EMAIL_HOST_PASSWORD = "wrong"
    refused = mail_send_test(to="ada@example.org")
    settings.EMAIL_HOST_PASSWORD, settings.EMAIL_PORT = "right", 1
    away = mail_send_test(to="ada@example.org")
    settings.EMAIL_HOST = ""
    none = mail_send_test(to="ada@example.org")

    assert len(inbox.messages) == 1
    assert isinstance(refused, MailNotSent)
    assert refused.reason.startswith("535 ")
    assert away == MailNotSent("127.0.0.1:1: Connection refused")
    assert none == MailNotSent("No mail server is set up: RPM_SMTP_HOST is empty.")


def test_without_a_server_nothing_waits_to_be_sent(root: User) -> None:
    assert not invite(root, email="ada@example.org").is_mailed
    assert Invitation.objects.get().mail_state == MailState.NONE


def test_the_page_of_a_link_lets_its_person_in_once(root: User, client: Client) -> None:
    invited = person_invite(actor=root, address=lambda token: f"/join/{token}/", email="a@b.org")
    form = {"username": "ada", "first_name": "", "last_name": "", "password": PASSWORD}

    page = client.get(invited.link)
    weak = client.post(invited.link, form | {"password": "x"})
    done = client.post(invited.link, form)
    again = Client().post(invited.link, form | {"username": "eve"})

    assert page.status_code == 200
    # With none at all browsers send `Origin: null`, and the form would be refused.
    assert page["Referrer-Policy"] == "same-origin"
    assert weak.status_code == 400
    assert done["Location"] == "/"
    assert client.get("/").status_code == 200
    assert again.status_code == 410
    assert not User.objects.filter(username="eve").exists()
