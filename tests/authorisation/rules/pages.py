"""Pages, open addresses, and live cards."""

from tests.authorisation.roles import NOBODY, QUEUE_ADMIN, TEAM_A, Relation
from tests.authorisation.rules.builders import (
    ABSENT,
    ADMINS,
    ALL,
    ALLOW,
    BELOW,
    FORBID,
    GONE,
    HIDE,
    MATE,
    METHOD,
    OTHER,
    OWN,
    PAGELESS,
    SIGN_IN,
    SIGNED,
    TEAM,
    TENANT,
    rule,
    section,
)

# What everybody gets who sees a task.
SEEN_TASK = "/tasks/<pk>/ /tasks/<pk>/expected-start/ /tasks/<pk>/gpu-use/"

OPEN = section(
    rule(
        "/healthz /readyz /sign-in/ /resources/ /settings/",
        ALL,
        ALLOW,
    ),
    # These addresses have nothing at all; metrics have a token of their own, which is not set.
    rule("/api/v1/ /metrics", ALL, HIDE),
    # An installation with people is set up already: sign in instead.
    rule("/set-up/ /sign-in/again/ /sign-out/", ALL, SIGN_IN),
    # Only in the middle of a log-in.
    rule("/sign-in/second-factor/", ALL, SIGN_IN, ALLOW),
    # Holders of a link that works.
    rule("/join/<token>/", ALL, GONE, relation=[ABSENT]),
    rule("/join/<token>/", ALL, ALLOW),
    # Providers that there are; of their answers, state and signature are checked. The world's
    # provider speaks OpenID Connect: as a SAML one it does not exist.
    rule("/sign-in/with/*", ALL, HIDE, relation=[ABSENT]),
    rule("/sign-in/with/*acs/* /sign-in/with/*/metadata/", ALL, HIDE),
    # Nobody returns from a provider without having been sent there.
    rule("/sign-in/with/<slug>/callback/", ALL, FORBID),
    rule("/sign-in/with/<slug>/", ALL, ALLOW),
)

# --- live cards: credentials count at the socket, not where a card is fetched as a page ----------

CARDS = section(
    rule("card:*", PAGELESS, SIGN_IN, method="CARD"),
    rule("card:*", [NOBODY], SIGN_IN, method="WATCH"),
    rule("card:*", SIGNED, HIDE, relation=[ABSENT]),
    rule("card:*", ADMINS, ALLOW),
    rule("card:node_* card:resource_state", SIGNED, HIDE),
    rule("card:notice_bell card:overview card:*_rows card:resource_board", SIGNED, ALLOW),
    rule("card:policy_pause", TENANT, ALLOW, relation=[BELOW]),
    rule("card:policy_pause", SIGNED, HIDE),
    rule("card:policy_* card:queue_waiting", SIGNED, ALLOW, relation=[TEAM]),
    rule("card:queue_waiting", [QUEUE_ADMIN], ALLOW),
    rule("card:task_*", SIGNED, ALLOW, relation=[OWN]),
    # Team B lets the owner of team A read one task and its log.
    rule("card:task_*", [TEAM_A], ALLOW, relation=[OTHER], kind="shared"),
    rule("card:task_*", SIGNED, HIDE, kind="draft"),
    rule("card:policy_* card:queue_* card:task_*", TENANT, ALLOW, relation=[BELOW]),
    rule("card:task_log", SIGNED, HIDE),
    rule("card:task_*", SIGNED, ALLOW, relation=[MATE]),
    rule("card:task_*", [QUEUE_ADMIN], ALLOW),
    rule("card:*", SIGNED, HIDE),
)

# --- pages -------------------------------------------------------------------------------------

PAGES_INSTALLATION = section(
    rule("/*", PAGELESS, SIGN_IN),
    rule(
        "/policies/new/ /settings/people/ /settings/people/groups/ /settings/people/groups/new/ "
        "/settings/people/invite/",
        TENANT,
        ALLOW,
    ),
    rule("/settings/people/groups/<pk>/*", TENANT, ALLOW, relation=[TEAM, BELOW]),
    rule("/settings/people/<pk>/credentials/*", TENANT, HIDE, kind="guest"),
    # Theirs; the administrator of the world's tenant has no credential.
    rule("/settings/people/<pk>/credentials/*", TENANT, HIDE, relation=[OWN]),
    rule("/settings/people/<pk>/*", TENANT, ALLOW, relation=[OWN, BELOW]),
    rule("/policies/<pk>/queue-name/", TENANT, HIDE),
    # Rules and restrictions of what a role manages; everybody may ask for their own explanation.
    rule("/settings/access/explain/", SIGNED, ALLOW),
    rule("/settings/access/ /settings/access/new/", TENANT, ALLOW),
    rule("/settings/access/rules/<key>/*", TENANT, ALLOW, relation=[BELOW]),
    # The top is the installation's.
    rule("/policies/<pk>/restrict/", TENANT, HIDE, relation=[TEAM]),
    rule("/policies/<pk>/restrict/ /settings/access/*", SIGNED - ADMINS - TENANT, HIDE, FORBID),
    rule("/policies/<pk>/*", TENANT, ALLOW, relation=[BELOW]),
    # Another's test of a provider, and one that was never made, do not exist; nor does a question
    # about selected tasks without an action.
    rule("/settings/identity/test/* /tasks/selected/", SIGNED, HIDE),
    rule(
        "/nodes/* /policies/new/ /policies/<pk>/edit/ /policies/<pk>/connect/ "
        "/policies/<pk>/queue-name/ /policies/<pk>/queues/* /policies/<pk>/delete/ "
        "/policies/<pk>/pause/ /policies/<pk>/resume/ /settings/access/* /settings/audit/* "
        "/settings/identity/* /settings/people/* /settings/service-accounts/* "
        "/settings/tenants/* /settings/resources/edit/* "
        "/settings/resources/history/* /settings/resources/pools/* /settings/resources/switch/ "
        "/settings/resources/yaml/* /usage/rates/* /usage/threshold/",
        SIGNED - ADMINS,
        HIDE,
    ),
    rule("/*", SIGNED, HIDE, relation=[ABSENT]),
    # Only credentials of that very person are revoked on their page; the guest has none.
    rule("/settings/people/<pk>/credentials/*", ADMINS, HIDE, kind="guest"),
    rule("/settings/people/<pk>/credentials/*", ADMINS, ALLOW, HIDE),
    # The profile to name a queue after is asked for by a parameter.
    rule("/policies/<pk>/queue-name/", ADMINS, HIDE),
    rule(
        "/nodes/* /policies/new/ /policies/<pk>/* /settings/access/* /settings/audit/* "
        "/settings/identity/* /settings/people/* /settings/service-accounts/* "
        "/settings/tenants/* /settings/resources/* /usage/rates/* /usage/threshold/",
        ADMINS,
        ALLOW,
    ),
)

PAGES_OWN = section(
    rule(
        "/ /overview/* /tape/* /policies/ /policies/sparklines/ /queues/ /search/ /tasks/ "
        "/tasks/new/* /tasks/tabs/ /usage/* /credentials/ /settings/account/ /live/<name>/ "
        "/settings/resources/ /settings/vaults/ /settings/vaults/new/ /notices/ /notices/read/ "
        "/settings/notices/ /settings/notices/new/",
        SIGNED,
        ALLOW,
    ),
    rule("/settings/second-factor/keys/<pk>/remove/", SIGNED, HIDE, relation=set(Relation) - {OWN}),
    # A user without app and codes finds none to show or to remove.
    rule("/settings/second-factor/app/remove/ /settings/second-factor/codes/", SIGNED, ALLOW, HIDE),
    rule("/settings/second-factor/*", SIGNED, ALLOW, METHOD, method="PUT DELETE"),
    rule("/settings/second-factor/*", SIGNED, ALLOW),
    rule("/credentials/<pk>/* /settings/notices/<pk>/*", SIGNED, ALLOW, relation=[OWN]),
    rule("/credentials/<pk>/*", ADMINS, ALLOW),
    rule("/credentials/<pk>/* /settings/notices/<pk>/*", SIGNED, HIDE),
    rule("/policies/<pk>/*", SIGNED, ALLOW, relation=[TEAM]),
    rule("/policies/<pk>/*", SIGNED, HIDE),
)

PAGES_WORK = section(
    rule("/queues/<pk>/*", ADMINS, ALLOW),
    rule("/queues/<pk>/order/", [QUEUE_ADMIN], FORBID),
    rule("/queues/<pk>/*", [QUEUE_ADMIN], ALLOW),
    rule("/queues/<pk>/*", TENANT, ALLOW, relation=[BELOW]),
    rule(
        "/queues/<pk>/ /queues/<pk>/history/ /queues/<pk>/starts/", SIGNED, ALLOW, relation=[TEAM]
    ),
    rule("/queues/<pk>/*", SIGNED, FORBID, relation=[TEAM]),
    rule("/queues/<pk>/*", SIGNED, HIDE),
    # Without an attempt there is no log.
    rule("/tasks/<pk>/log/<generation>/", SIGNED, HIDE, kind="draft waiting"),
    # A draft is changed and goes into a queue by its owner's hand.
    rule("/tasks/<pk>/enqueue/ /tasks/<pk>/edit/", SIGNED, ALLOW, relation=[OWN]),
    rule("/tasks/<pk>/enqueue/ /tasks/<pk>/edit/", SIGNED, HIDE),
    rule("/tasks/<pk>/*", SIGNED, ALLOW, relation=[OWN]),
    rule("/tasks/<pk>/*", ADMINS, ALLOW),
    rule("/tasks/<pk>/*", SIGNED, HIDE, kind="draft"),
    rule("/tasks/<pk>/vaults/", SIGNED, HIDE),
    rule("/tasks/<pk>/*", TENANT, ALLOW, relation=[BELOW]),
    rule("/tasks/<pk>/log/*", SIGNED, HIDE),
    rule(SEEN_TASK, SIGNED, ALLOW, relation=[MATE]),
    rule(SEEN_TASK, [QUEUE_ADMIN], ALLOW),
    rule("/tasks/<pk>/*", SIGNED, FORBID, relation=[MATE]),
    rule("/tasks/<pk>/*", [QUEUE_ADMIN], FORBID),
    rule("/tasks/<pk>/*", SIGNED, HIDE),
    rule("/settings/vaults/<pk>/*", SIGNED, ALLOW, relation=[OWN]),
    rule("/settings/vaults/<pk>/*", ADMINS, ALLOW, kind="team-vault"),
    rule("/settings/vaults/<pk>/*", TENANT, ALLOW, relation=[BELOW], kind="team-vault"),
    rule("/settings/vaults/<pk>/ /settings/vaults/<pk>/move/", ADMINS, FORBID, method="POST"),
    rule(
        "/settings/vaults/<pk>/delete/ /settings/vaults/<pk>/download/ "
        "/settings/vaults/<pk>/versions/*",
        SIGNED,
        HIDE,
    ),
    rule("/settings/vaults/<pk>/*", ADMINS, ALLOW),
    rule("/settings/vaults/<pk>/", SIGNED, ALLOW, method="GET", relation=[TEAM]),
    rule("/settings/vaults/<pk>/*", SIGNED, FORBID, relation=[TEAM]),
    rule("/settings/vaults/<pk>/*", SIGNED, HIDE),
)
