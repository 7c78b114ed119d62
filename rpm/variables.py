"""The names of all variables, so that a misspelt one is refused."""

from collections.abc import Iterable
from difflib import get_close_matches

# Each has a row in docs/operating.md, "Variables", or in docs/people.md, "Mail".
NAMES = frozenset(
    {
        "RPM_ALLOW_OWN_ACCOUNT",
        "RPM_BACKUP_PASSPHRASE",
        "RPM_BEHIND_TLS_PROXY",
        "RPM_BODY_S",
        "RPM_CREDENTIAL_KEY",
        "RPM_CURRENCY",
        "RPM_DATABASE_POOL",
        "RPM_DATABASE_POOL_SIZE",
        "RPM_DEBUG",
        "RPM_DRAFTS_PER_PERSON",
        "RPM_ENV_FILE",
        "RPM_GANG_START_S",
        "RPM_HOME",
        "RPM_HOSTS",
        "RPM_HSTS_S",
        "RPM_IDENTITY_ALLOW_LOOPBACK",
        "RPM_IDENTITY_HOSTS",
        "RPM_INSTALLATION_NAME",
        "RPM_KEEP_EVENTS_DAYS",
        "RPM_KEEP_LOGS_DAYS",
        "RPM_KEEP_REVISIONS",
        "RPM_KEEP_TASKS_DAYS",
        "RPM_LEASE_S",
        "RPM_LOG_IN_TRIES",
        "RPM_LOG_IN_WAIT_MAX_S",
        "RPM_LOG_JSON",
        "RPM_LOG_LEVEL",
        "RPM_METRICS_TOKEN",
        "RPM_NODE_SILENT_S",
        "RPM_ORIGINS",
        "RPM_PASS_EVERY_S",
        "RPM_POSTGRES_PROGRAMS",
        "RPM_PROVIDER_STEPS_PER_ADDRESS",
        "RPM_REDACTED_VARIABLES",
        "RPM_REQUESTS_PER_ADDRESS",
        "RPM_REQUESTS_PER_CREDENTIAL",
        "RPM_SECRET_KEY",
        "RPM_SECRET_KEYS",
        "RPM_SERVE_SOURCES",
        "RPM_SMTP_FROM",
        "RPM_SMTP_HOST",
        "RPM_SMTP_PASSWORD",
        "RPM_SMTP_PORT",
        "RPM_SMTP_SECURITY",
        "RPM_SMTP_USER",
        "RPM_STATEMENT_TIMEOUT_S",
        "RPM_STATIC_ROOT",
        "RPM_STREAMS",
        "RPM_SYNC_TICK_S",
        "RPM_TASK_BYTES_PER_PERSON",
        "RPM_TASK_GROUPS_PER_QUEUE",
        "RPM_TOKEN_S",
        "RPM_TRUSTED_PROXIES",
        "RPM_WAITING_PER_PERSON",
        "RPM_WAITING_PER_QUEUE",
        "RPM_WRONG_SECRETS_PER_ADDRESS",
        "RPM_WRONG_SECRETS_PER_KEY",
    }
)
# Of `rpmctl`, of docker/compose.yaml, of tests; those of tasks are unlike any above.
OTHERS = frozenset(
    {
        "RPM_CRASH_AT",
        "RPM_HOST",
        "RPM_KEY",
        "RPM_PROFILE",
        "RPM_SECRET",
        "RPM_SOCKET_WORKERS",
        "RPM_TOKEN",
        "RPM_URL",
        "RPM_WEB_WORKERS",
        "RPM_WORKER_THREADS",
    }
)
ALIKE = 0.85


def misspelt_names(given: Iterable[str]) -> dict[str, str]:
    """Unknown names that are almost one of these, with the one that is meant."""
    bare = {name: name.removesuffix("_FILE") for name in given if name.startswith("RPM_")}
    strange = {name: one for name, one in bare.items() if one not in NAMES | OTHERS}
    near = {name: get_close_matches(one, sorted(NAMES), 1, ALIKE) for name, one in strange.items()}
    return {name: found[0] for name, found in near.items() if found}
