"""Django settings. What differs between installations is a variable that `rpm.env` reads."""

from pathlib import Path
from typing import Any

import structlog
from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.urls import reverse_lazy

from rpm import env
from rpm.admin_menu import UNFOLD  # noqa: F401  # a setting
from rpm.settings_bounds import *  # noqa: F403  # settings are read by name
from rpm.settings_schedule import *  # noqa: F403

BASE_DIR = Path(__file__).resolve().parent.parent
env.check_names()
HOME = env.home()
# For commands that pages show to administrators of the server.
SERVICE_ACCOUNT = env.service_account()

# One secret for sessions, one for the keyed hashes of credentials: either can be changed alone.
SECRET_KEY = HOME.secret("secret-key", "RPM_SECRET_KEY")
RPM_CREDENTIAL_KEY = HOME.secret("credential-key", "RPM_CREDENTIAL_KEY")
# What seals secrets at rest (`apps.core.keyring`), the one in use first; else the file of keys.
RPM_SECRET_KEYS = env.text("RPM_SECRET_KEYS").replace(",", " ").split()
RPM_KEY_RING_FILE = HOME.file("key-ring")
# Variables whose values are hidden, and masked in logs; patterns as of a shell.
RPM_REDACTED_VARIABLES = env.words(
    "RPM_REDACTED_VARIABLES",
    ["*SECRET*", "*TOKEN*", "*PASSWORD*", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY"],
)
RPM_METRICS_TOKEN = env.secret("RPM_METRICS_TOKEN")
DEBUG = env.flag("RPM_DEBUG", default=False)
ALLOWED_HOSTS = env.words("RPM_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("RPM_ORIGINS", [])
RPM_INSTALLATION_NAME = env.text("RPM_INSTALLATION_NAME", "RPM")
RPM_CURRENCY = env.text("RPM_CURRENCY", "EUR")
# Behind a proxy that speaks TLS and sets X-Forwarded-Proto.
if env.flag("RPM_BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = env.number("RPM_HSTS_S", 31_536_000, low=0, high=63_072_000)
# The proxy redirects to TLS; whether other hosts of the domain speak it, their owner knows.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]

# Proxies whose X-Forwarded-For is trusted, e.g. 127.0.0.1,10.0.0.0/8.
RPM_TRUSTED_PROXIES = env.networks("RPM_TRUSTED_PROXIES")

INSTALLED_APPS = [
    # The basic one leaves the site to ours, which lets people in by their groups.
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.guardian",
    "rpm.apps.RpmAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_filters",
    "guardian",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.mfa",
    "rpm.apps.RpmConfig",
    "apps.core.apps.CoreConfig",
    "apps.accounts.apps.AccountsConfig",
    "apps.events.apps.EventsConfig",
    "apps.vaults.apps.VaultsConfig",
    "apps.policies.apps.PoliciesConfig",
    "apps.access.apps.AccessConfig",
    "apps.nodes.apps.NodesConfig",
    "apps.tasks.apps.TasksConfig",
    "apps.allocation.apps.AllocationConfig",
    "apps.execution.apps.ExecutionConfig",
    "apps.notices.apps.NoticesConfig",
    "apps.usage.apps.UsageConfig",
    "apps.configuration.apps.ConfigurationConfig",
    "apps.dashboard.apps.DashboardConfig",
]

MIDDLEWARE = [
    "apps.core.middleware.request_id",
    "apps.core.headers.response_defences",
    "apps.core.middleware.rest_slash",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "apps.core.headers.PolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.accounts.middleware.last_active",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "apps.dashboard.middleware.second_factor_first",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "apps.core.middleware.rpm_errors",
]

ROOT_URLCONF = "rpm.urls"
WSGI_APPLICATION = "rpm.wsgi.application"
ASGI_APPLICATION = "rpm.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.dashboard.context.site",
            ],
        },
    },
]

# --- where things are kept -------------------------------------------------------------------

DATABASE_URL = env.text("DATABASE_URL", f"sqlite:///{HOME.file('rpm.sqlite3')}")
DATABASES: dict[str, dict[str, Any]] = {"default": env.own_database(DATABASE_URL)}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # Tests with several threads need a file: in memory SQLite locks tables and never waits.
    DATABASES["default"]["TEST"] = {"NAME": str(HOME.file("test.sqlite3"))}
if DATABASES["default"]["ENGINE"].endswith("postgresql"):
    if env.flag("RPM_DATABASE_POOL", default=False):
        # Under ASGI every request would else open a connection of its own.
        pool_size = env.number("RPM_DATABASE_POOL_SIZE", 10, low=1, high=500)
        DATABASES["default"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": pool_size}
    else:
        DATABASES["default"]["CONN_MAX_AGE"] = 300
        DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# `manage.py up` starts a bundled Redis on this socket where REDIS_URL is not set.
REDIS_SOCKET = HOME.file("redis.sock")
REDIS_URL = env.text("REDIS_URL", f"unix://{REDIS_SOCKET}")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [env.channel_host(REDIS_URL)], "prefix": "rpm"},
    },
}
# What django-allauth counts, such as wrong codes.
CACHES = {"default": {"BACKEND": "apps.core.shared_cache.SharedCache"}}

# --- background work: notifications ----------------------------------------------------------

CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_SOFT_TIME_LIMIT = 30
CELERY_TASK_EXPIRES = 60
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = env.BROKER_OPTIONS
CELERY_TIMEZONE = "UTC"
SYNC_TICK_S = env.number("RPM_SYNC_TICK_S", 10, low=1, high=60)
# When leased tasks end on a silent node, and when a node is shown as silent.
LEASE_S = env.number("RPM_LEASE_S", 900, low=5, high=86_400)
NODE_SILENT_S = env.number("RPM_NODE_SILENT_S", 30, low=1, high=3600)
# Commands and terminals in running tasks.
STREAMS = env.flag("RPM_STREAMS", default=True)
ALLOW_OWN_ACCOUNT = env.flag("RPM_ALLOW_OWN_ACCOUNT", default=False)
# A gang returns to its queue when a member has run this long and another has not started.
GANG_START_S = env.number("RPM_GANG_START_S", 600, low=5, high=86_400)
CELERY_BEAT_SCHEDULE_FILENAME = str(HOME.file("beat-schedule"))

# --- people ----------------------------------------------------------------------------------

SESSION_ENGINE = "apps.accounts.session_store"
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "apps.accounts.backends.PersonBackend",
    "apps.accounts.backends.ExternalBackend",
    "apps.accounts.backends.GroupRoleBackend",
    "guardian.backends.ObjectPermissionBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Lifetime of a token of a credential.
RPM_TOKEN_S = env.number("RPM_TOKEN_S", 900, low=60, high=86_400)
# Per minute; 0 is no limit. Generous: they stop programs that went wild, not work.
RPM_REQUESTS_PER_CREDENTIAL = env.number(
    "RPM_REQUESTS_PER_CREDENTIAL", 300_000, low=0, high=10_000_000
)
RPM_REQUESTS_PER_ADDRESS = env.number("RPM_REQUESTS_PER_ADDRESS", 600_000, low=0, high=10_000_000)
# A log-in with an identity provider takes two or three; a whole company may share an address.
RPM_PROVIDER_STEPS_PER_ADDRESS = env.number(
    "RPM_PROVIDER_STEPS_PER_ADDRESS", 3000, low=0, high=10_000_000
)
# Wrong keys and secrets per minute, and wrong passwords before the waits begin to grow.
RPM_WRONG_SECRETS_PER_ADDRESS = env.number(
    "RPM_WRONG_SECRETS_PER_ADDRESS", 60, low=1, high=1_000_000
)
RPM_WRONG_SECRETS_PER_KEY = env.number("RPM_WRONG_SECRETS_PER_KEY", 20, low=1, high=1_000_000)
RPM_LOG_IN_TRIES = env.number("RPM_LOG_IN_TRIES", 5, low=1, high=1000)
RPM_LOG_IN_WAIT_MAX_S = env.number("RPM_LOG_IN_WAIT_MAX_S", 900, low=1, high=86_400)
# Identity providers and second factors, by django-allauth: only the pages that `dashboard` names.
ACCOUNT_ADAPTER = "apps.accounts.identity.adapter.LogInAdapter"
SOCIALACCOUNT_ADAPTER = "apps.accounts.identity.adapter.ProviderAdapter"
MFA_ADAPTER = "apps.accounts.identity.adapter.SecondFactorAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_AUTO_SIGNUP = False
MFA_FORMS = {
    "authenticate": "apps.accounts.identity.codes.CodeForm",
    "reauthenticate": "apps.accounts.identity.codes.CodeAgainForm",
    "activate_totp": "apps.accounts.identity.codes.AppForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_RECOVERY_CODES_SHOW_ONCE = True
# Clocks of telephones are off by a little; a code works once, whichever step it is of.
MFA_TOTP_TOLERANCE = 1
MFA_TOTP_ISSUER = RPM_INSTALLATION_NAME
# Providers in private networks, by name; and those on this machine, over http too, for trying out.
RPM_IDENTITY_HOSTS = env.words("RPM_IDENTITY_HOSTS", [])
# Certificates that are trusted in place of the public ones; httpx and curl read the same variable.
RPM_CA_FILE = env.text("SSL_CERT_FILE")
RPM_IDENTITY_ALLOW_LOOPBACK = env.flag("RPM_IDENTITY_ALLOW_LOOPBACK", default=False)
# django-guardian makes no anonymous user: visitors who are not signed in see nothing.
ANONYMOUS_USER_NAME = None
LOGIN_URL = reverse_lazy("sign_in")
LOGIN_REDIRECT_URL = reverse_lazy("overview")
LOGOUT_REDIRECT_URL = reverse_lazy("sign_in")

# Invitations go by mail where a server is named; else the page shows the link to copy.
_SMTP = env.smtp()
EMAIL_HOST, EMAIL_PORT = _SMTP.host, _SMTP.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _SMTP.user, _SMTP.password
EMAIL_USE_TLS, EMAIL_USE_SSL = _SMTP.security == "starttls", _SMTP.security == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = _SMTP.sender

# --- edges -----------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.tasks.api.delegation.DelegatedAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    # Every view passes one that is a `HasScope` (`tests/rpm/test_scopes.py`).
    "DEFAULT_PERMISSION_CLASSES": ["apps.accounts.api.permissions.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["apps.accounts.api.throttling.CredentialThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.parsers.BoundedJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "apps.core.api.KeysetPagination",
    "EXCEPTION_HANDLER": "apps.core.api.exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "RPM, the resource policy manager",
    "VERSION": "v1",
    "DESCRIPTION": "Pools, profiles, policies, queues and tasks. Errors have one shape: "
    "`code`, `detail`, `fields`.",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["apps.accounts.api.permissions.HasScope"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.core.schema.errors_everywhere",
        "apps.core.schema.blank_texts",
        "apps.core.schema.without_ranges_of_columns",
    ],
    "ENUM_NAME_OVERRIDES": {
        "TaskState": "apps.tasks.lifecycle.states.TaskState",
        "AttemptState": "apps.tasks.lifecycle.states.AttemptState",
        "CredentialScope": "apps.accounts.models.Scope",
        "ScopeEnum": "apps.nodes.models.VolumeScope",
        "AccessRuleKind": "apps.access.levels.RuleKind",
        "AccessRuleLevel": "apps.access.levels.Level",
        "AccessObjectKind": "apps.configuration.access_explanation.ObjectKind",
        "NoticeDigest": "apps.notices.models.NoticeDigest",
        "NoticeKind": "apps.notices.models.NoticeKind",
        "NoticeScope": "apps.notices.models.NoticeScope",
        "PermissionName": "apps.configuration.access_explanation.PermissionName",
    },
}
# The largest body of a bulk of tasks, of other requests, and of anonymous ones; and the time
# within which a body must arrive.
RPM_LARGEST_BODY = 20_000_000
RPM_USUAL_BODY = 5_000_000
RPM_UNKNOWN_BODY = 2_000_000
RPM_BODY_S = env.number("RPM_BODY_S", 60, low=1, high=3600)
# The largest request body: a command or an environment is at most 1 MB.
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_500_000

CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "base-uri": [NONE],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
    },
}
# Pages of libraries that need more; none of them gets a script inside the page.
RPM_POLICIES: dict[str, dict[str, list[str]]] = {
    # Alpine.js, of unfold, makes functions of the attributes in its own templates.
    "/admin/": {
        "script-src": [SELF, UNSAFE_EVAL],
        "style-src": [SELF, UNSAFE_INLINE],
        "font-src": [SELF, "data:"],
    },
    # Swagger styles what it draws.
    "/api/v1/docs/": {"style-src": [SELF, UNSAFE_INLINE]},
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

STATIC_URL = "static/"
STATIC_ROOT = Path(env.text("RPM_STATIC_ROOT") or HOME.file("static"))
if not env.text("RPM_STATIC_ROOT"):
    STATIC_ROOT.mkdir(exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# A web server of another account may serve them, whatever the umask of who collects them.
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o755
WHITENOISE_USE_FINDERS = env.flag("RPM_SERVE_SOURCES", default=True)
WHITENOISE_AUTOREFRESH = False

USE_TZ = True
TIME_ZONE = "UTC"
# English only (docs/decisions/0007-english-only.md): also for the texts of Django and the others.
LANGUAGE_CODE = "en"
USE_I18N = False

# --- logs: one JSON object per line, each with its request id --------------------------------

_SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
structlog.configure(
    processors=[*_SHARED_PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    cache_logger_on_first_use=True,
)
_LOG_AS_JSON = env.flag("RPM_LOG_JSON", default=True)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _SHARED_PROCESSORS,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer()
                if _LOG_AS_JSON
                else structlog.dev.ConsoleRenderer(colors=False),
            ],
        },
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.log_level()},
    "loggers": {
        **env.SERVER_LOGGERS,
        "paramiko": {"level": "CRITICAL"},
        "celery.beat": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
