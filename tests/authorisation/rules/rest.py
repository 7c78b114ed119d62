"""REST."""

from tests.authorisation.roles import NOBODY, QUEUE_ADMIN, SERVICE, TEAM_A
from tests.authorisation.rules.builders import (
    ABSENT,
    ADMINS,
    ALLOW,
    BELOW,
    FORBID,
    HIDE,
    INSTALLATION,
    MATE,
    MEMBERS,
    OTHER,
    OWN,
    QUEUES,
    SIGN_IN,
    SIGNED,
    TEAM,
    TENANT,
    rule,
    section,
)

REST_INSTALLATION = section(
    rule("/api/v1/*", [NOBODY], SIGN_IN),
    # What only administrators have to do with: others are forbidden, whatever they ask about.
    rule("/api/v1/groups/* /api/v1/users/*", SIGNED - ADMINS - TENANT, FORBID),
    rule(
        "/api/v1/audit/* /api/v1/configuration/* /api/v1/identity-providers/* "
        "/api/v1/installation/* /api/v1/log-in-rules/ /api/v1/nodes/* /api/v1/passes/* "
        "/api/v1/service-accounts/* /api/v1/tenants/* /api/v1/usage/rates/* "
        "/api/v1/usage/threshold/ /api/v1/volumes/*",
        SIGNED - ADMINS,
        FORBID,
    ),
    rule("/api/v1/*", SIGNED, HIDE, relation=[ABSENT]),
    # Snapshots are kept of passes that had one.
    rule("/api/v1/passes/<pk>/snapshot/", ADMINS, HIDE, ALLOW),
    rule(
        "/api/v1/audit/* /api/v1/configuration/* /api/v1/groups/* /api/v1/identity-providers/* "
        "/api/v1/installation/* /api/v1/log-in-rules/ /api/v1/nodes/* /api/v1/passes/* "
        "/api/v1/service-accounts/* /api/v1/tenants/* /api/v1/usage/rates/* /api/v1/users/* "
        "/api/v1/usage/threshold/ /api/v1/volumes/*",
        ADMINS,
        ALLOW,
    ),
    # Administrators of a tenant manage its groups and people, including themselves.
    rule("/api/v1/groups/ /api/v1/users/", TENANT, ALLOW),
    rule("/api/v1/groups/<pk>/*", TENANT, ALLOW, relation=[TEAM, BELOW]),
    rule("/api/v1/users/<pk>/*", TENANT, ALLOW, relation=[OWN, BELOW]),
    rule("/api/v1/groups/<pk>/* /api/v1/users/<pk>/*", TENANT, HIDE),
)

REST_ACCESS = section(
    # Rules of what a role manages; others have neither rules nor objects to make any for. The new
    # one is for team A's policy.
    rule("/api/v1/access-rules/", ADMINS | TENANT, ALLOW),
    rule("/api/v1/access-rules/", SIGNED, HIDE),
    rule("/api/v1/access-rules/<key>/", ADMINS, ALLOW),
    rule("/api/v1/access-rules/<key>/", TENANT, ALLOW, relation=[BELOW]),
    rule("/api/v1/access-rules/<key>/", SIGNED, HIDE),
    # Users may ask why they may do something about what they see.
    rule("/api/v1/access/explain/", ADMINS, ALLOW),
    rule("/api/v1/access/explain/", SIGNED, ALLOW, relation=[TEAM, BELOW]),
    rule("/api/v1/access/explain/", SIGNED, HIDE),
)

REST_ACCOUNT = section(
    rule(
        "/api/v1/account/* /api/v1/preferences/ /api/v1/credentials/ /api/v1/tasks/ "
        "/api/v1/tasks/bulk/ /api/v1/tasks/bulk-actions/ "
        "/api/v1/tasks/check/ /api/v1/vaults/ /api/v1/vaults/validate/ "
        "/api/v1/notices/ /api/v1/notices/read/ /api/v1/notice-rules/ "
        "/api/v1/notice-settings/ "
        "/api/v1/schema/ /api/v1/docs/",
        SIGNED,
        ALLOW,
    ),
    # Lists of visible objects, and sums of visible policies, which may be empty.
    rule(
        "/api/v1/pools/ /api/v1/profiles/ /api/v1/policies/ /api/v1/queues/ /api/v1/access-rules/ "
        "/api/v1/usage/*",
        SIGNED,
        ALLOW,
        method="GET",
    ),
    # Made with key and secret, not with a session.
    rule("/api/v1/token/", [SERVICE], ALLOW),
    rule("/api/v1/token/", SIGNED, SIGN_IN),
    rule("/api/v1/credentials/<pk>/ /api/v1/notice-rules/<pk>/", SIGNED, ALLOW, relation=[OWN]),
    rule("/api/v1/credentials/<pk>/ /api/v1/notice-rules/<pk>/", SIGNED, HIDE),
)

REST_POLICIES = section(
    rule("/api/v1/pools/<pk>/*", ADMINS, ALLOW),
    rule("/api/v1/pools/<pk>/*", SIGNED, HIDE),
    # Profiles of visible queues: that of the installation is connected to every team's policy.
    rule("/api/v1/profiles/<pk>/", QUEUES | TENANT, ALLOW),
    rule("/api/v1/profiles/<pk>/", MEMBERS, ALLOW, relation=[TEAM, INSTALLATION]),
    rule("/api/v1/profiles/<pk>/", SIGNED, HIDE),
    rule("/api/v1/policies/ /api/v1/policies/preview/", ADMINS | TENANT, ALLOW),
    rule("/api/v1/policies/ /api/v1/policies/preview/", SIGNED, FORBID),
    rule("/api/v1/policies/<pk>/profiles/*", [QUEUE_ADMIN], ALLOW),
    rule("/api/v1/policies/<pk>/*", ADMINS, ALLOW),
    rule("/api/v1/policies/<pk>/exceeders/", MEMBERS | TENANT, FORBID, relation=[TEAM, BELOW]),
    rule("/api/v1/policies/<pk>/restriction/", MEMBERS, FORBID, relation=[TEAM]),
    # They may change policies below the top, but not the top.
    rule("/api/v1/policies/<pk>/*", TENANT, ALLOW, relation=[BELOW]),
    rule("/api/v1/policies/<pk>/*", TENANT, ALLOW, method="GET", relation=[TEAM]),
    rule("/api/v1/policies/<pk>/*", TENANT, FORBID, relation=[TEAM]),
    rule("/api/v1/policies/<pk>/*", MEMBERS, ALLOW, method="GET", relation=[TEAM]),
    rule("/api/v1/policies/<pk>/*", MEMBERS, FORBID, relation=[TEAM]),
    rule("/api/v1/policies/<pk>/*", SIGNED, HIDE),
    rule("/api/v1/queues/reorder/", QUEUES | TENANT, ALLOW),
    rule("/api/v1/queues/reorder/", SIGNED, FORBID),
    rule("/api/v1/queues/<name_or_id>/*", QUEUES, ALLOW),
    rule("/api/v1/queues/<name_or_id>/*", TENANT, ALLOW, relation=[BELOW]),
    rule("/api/v1/queues/<name_or_id>/*", MEMBERS, ALLOW, method="GET", relation=[TEAM]),
    rule("/api/v1/queues/<name_or_id>/*", MEMBERS, FORBID, relation=[TEAM]),
    rule("/api/v1/queues/<name_or_id>/*", SIGNED, HIDE),
)

# What the managers of a task's queue do with it, and its owner does not.
BY_MANAGERS = "/api/v1/tasks/<pk>/reorder/ /api/v1/tasks/<pk>/idle-rule/ /tasks/<pk>/idle-rule/"
REST_TASKS = section(
    rule("/api/v1/tasks/<pk>/effective-vault/", ADMINS, ALLOW),
    rule("/api/v1/tasks/<pk>/effective-vault/", SIGNED, ALLOW, relation=[OWN]),
    rule("/api/v1/tasks/<pk>/effective-vault/", SIGNED, HIDE),
    # Only roles that may read the log learn whether there is an attempt.
    rule("/api/v1/tasks/<pk>/logs/", SIGNED, ALLOW, HIDE, relation=[OWN], kind="draft waiting"),
    rule("/api/v1/tasks/<pk>/logs/", ADMINS, ALLOW, HIDE, kind="draft waiting"),
    rule("/api/v1/tasks/<pk>/*", SIGNED, ALLOW, method="GET", relation=[OWN]),
    # Only the owner knows whether its state is saved; only managers of the queue move it there.
    rule("/api/v1/tasks/<pk>/checkpoint/", SIGNED, ALLOW, relation=[OWN]),
    rule("/api/v1/tasks/<pk>/checkpoint/", ADMINS, FORBID),
    rule(BY_MANAGERS, SIGNED - ADMINS, FORBID, relation=[OWN]),
    rule(BY_MANAGERS, ADMINS, FORBID, HIDE, method="POST PUT", kind="draft"),
    rule("/api/v1/tasks/<pk>/*", SIGNED, ALLOW, relation=[OWN]),
    # All of these hold secrets, which a command of another user could print.
    rule("/api/v1/tasks/<pk>/", ADMINS, FORBID, method="PATCH"),
    rule("/api/v1/tasks/<pk>/*", ADMINS, ALLOW),
    # A draft is in no queue: nobody else sees it.
    rule("/api/v1/tasks/<pk>/*", SIGNED, HIDE, kind="draft"),
    # Team B lets the owner of team A read one task and its log.
    rule(
        "/api/v1/tasks/<pk>/* /tasks/<pk>/ /tasks/<pk>/expected-start/ /tasks/<pk>/gpu-use/ "
        "/tasks/<pk>/log/*",
        [TEAM_A],
        ALLOW,
        method="GET",
        relation=[OTHER],
        kind="shared",
    ),
    # Pages that are the owner's alone do not exist for others.
    rule(
        "/api/v1/tasks/<pk>/* /tasks/<pk>/*",
        [TEAM_A],
        FORBID,
        HIDE,
        relation=[OTHER],
        kind="shared",
    ),
    rule("/api/v1/tasks/<pk>/logs/", MEMBERS, FORBID, HIDE, relation=[MATE]),
    rule("/api/v1/tasks/<pk>/logs/", [QUEUE_ADMIN], FORBID, HIDE),
    rule("/api/v1/tasks/<pk>/*", MEMBERS, ALLOW, method="GET", relation=[MATE]),
    rule("/api/v1/tasks/<pk>/*", MEMBERS, FORBID, relation=[MATE]),
    rule("/api/v1/tasks/<pk>/*", [QUEUE_ADMIN], ALLOW, method="GET"),
    rule("/api/v1/tasks/<pk>/*", [QUEUE_ADMIN], FORBID),
    # They manage the queues, and are not the owner.
    rule("/api/v1/tasks/<pk>/checkpoint/", TENANT, FORBID, relation=[BELOW]),
    rule(
        "/api/v1/tasks/<pk>/ /api/v1/tasks/<pk>/enqueue/",
        TENANT,
        FORBID,
        method="PATCH POST",
        relation=[BELOW],
    ),
    rule("/api/v1/tasks/<pk>/*", TENANT, ALLOW, relation=[BELOW]),
    rule("/api/v1/tasks/<pk>/*", SIGNED, HIDE),
)

REST_VAULTS = section(
    rule("/api/v1/vaults/<pk>/*", SIGNED, ALLOW, relation=[OWN]),
    # Administrators know of personal vaults, read who did what, and switch them off.
    rule("/api/v1/vaults/<pk>/*", ADMINS, ALLOW, kind="team-vault"),
    rule("/api/v1/vaults/<pk>/versions/*", ADMINS, HIDE),
    rule("/api/v1/vaults/<pk>/move/ /api/v1/vaults/<pk>/restore/", ADMINS, FORBID),
    rule("/api/v1/vaults/<pk>/", ADMINS, FORBID, method="DELETE"),
    rule("/api/v1/vaults/<pk>/*", ADMINS, ALLOW),
    rule("/api/v1/vaults/<pk>/*", TENANT, ALLOW, relation=[BELOW], kind="team-vault"),
    rule("/api/v1/vaults/<pk>/history/ /api/v1/vaults/<pk>/versions/*", SIGNED, HIDE),
    rule("/api/v1/vaults/<pk>/", MEMBERS, ALLOW, method="GET", relation=[TEAM]),
    rule("/api/v1/vaults/<pk>/*", MEMBERS, FORBID, relation=[TEAM]),
    rule("/api/v1/vaults/<pk>/*", SIGNED, HIDE),
)
