"""The admin site: for administrators, and for those of queues as far as queues go."""

from tests.authorisation.roles import NOBODY, QUEUE_ADMIN, SERVICE, Relation
from tests.authorisation.rules.builders import (
    ABSENT,
    ADMINS,
    ALL,
    ALLOW,
    FORBID,
    HIDE,
    METHOD,
    QUEUES,
    SIGN_IN,
    SIGNED,
    rule,
    section,
)

_LOOKED_AT = (
    "/admin/accounts/credential/* /admin/allocation/passrecord/* /admin/configuration/revision/* "
    "/admin/events/event/* /admin/policies/pool/* /admin/policies/profile/* /admin/tasks/* "
    "/admin/policies/*permission/* /admin/nodes/volume*permission/* "
    "/admin/nodes/installation/* /admin/accounts/loginrules/* /admin/accounts/tenant/* "
    "/admin/accounts/identityprovider/* /admin/events/auditentry/* /admin/usage/rate/* "
    "/admin/vaults/* /admin/notices/*"
)

SITE = section(
    # One page to sign in; signed-in users without access find nothing there.
    rule("/admin/login/", SIGNED - {SERVICE}, HIDE),
    rule("/admin/logout/", QUEUES, METHOD, method="GET"),
    rule("/admin/logout/", QUEUES, SIGN_IN),
    rule("/admin/logout/", ALL, HIDE),
    rule("/admin/*", SIGNED - QUEUES, SIGN_IN),
    rule("/admin/*", [NOBODY], SIGN_IN),
    rule("/admin/<url>", QUEUES, HIDE),
    rule("/admin/jsi18n/", QUEUES, METHOD, method="POST"),
    rule("/admin/ /admin/<app_label>/ /admin/jsi18n/ /admin/search/", QUEUES, ALLOW),
    rule("/admin/autocomplete/", ADMINS, ALLOW, method="GET"),
    rule("/admin/autocomplete/", ADMINS, METHOD),
    rule("/admin/autocomplete/", [QUEUE_ADMIN], FORBID, METHOD),
    # Both redirect to the page of the user's own account.
    rule("/admin/password_change/*", QUEUES, ALLOW),
    # Nothing has an address of its own there.
    rule("/admin/r/*", QUEUES, HIDE),
    rule("/admin/policies/queue/<object_id>/*/", QUEUES, HIDE, relation=[ABSENT]),
    rule("/admin/policies/queue/*", QUEUES, ALLOW),
    # They only redirect: to a form, which checks the user, or to a step.
    rule("/admin/*/<object_id>/", QUEUES, ALLOW),
    rule("/admin/policies/draftp*/*", [QUEUE_ADMIN], ALLOW, FORBID, relation=[Relation.NOTHING]),
    rule("/admin/*", [QUEUE_ADMIN], FORBID, HIDE),
    rule("/admin/*/add/ /admin/*/delete/", ADMINS, FORBID, HIDE, kind="person draft-state"),
    # To add and remove a node it redirects to their pages, which check the user.
    rule("/admin/nodes/node/add/", ADMINS, ALLOW),
    rule("/admin/policies/draftstate/add/", ADMINS, FORBID),
)
SITE += section(
    rule(" ".join(f"{one}add/ {one}delete/" for one in _LOOKED_AT.split()), ADMINS, FORBID, HIDE),
    # Their history is read, and lists have actions; else nothing is sent there.
    rule("/admin/*/<object_id>/history/", ADMINS, HIDE, relation=[ABSENT]),
    rule(
        " ".join(f"{one}change/" for one in _LOOKED_AT.split()),
        ADMINS,
        FORBID,
        HIDE,
        method="POST",
    ),
    rule("/admin/*", ADMINS, HIDE, FORBID, relation=[ABSENT]),
    rule("/admin/*", ADMINS, ALLOW),
)
