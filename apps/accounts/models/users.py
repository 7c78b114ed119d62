"""Users, and the facts about groups that Django's table does not hold."""

from django.contrib.auth.models import AbstractUser, Group
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.crypto import salted_hmac

USERS = "Users"
ADMINS = "Admins"
QUEUE_ADMINS = "Queue admins"
BUILT_IN_GROUPS = (USERS, ADMINS, QUEUE_ADMINS)
# Django's value, so that sessions from before there was a nonce continue.
_SESSION_SALT = "django.contrib.auth.models.AbstractBaseUser.get_session_auth_hash"


class PersonStatus(models.TextChoices):
    ACTIVE = "active", "Active"
    PENDING = "pending", "Pending"
    DEACTIVATED = "deactivated", "Deactivated"


class User(AbstractUser):
    """A person, or a service account that cannot log in.

    `is_staff` and `is_superuser` are never set by hand: what a user may do follows from groups
    (`apps.accounts.selectors`), so there is no second place that gives permissions.
    """

    # The service account that acts for this person, on the instances of such a request alone.
    acted_by_id: int | None = None

    email = models.EmailField("e-mail address", blank=True)
    is_email_unverified = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="The person entered the address, and no administrator has confirmed it since.",
    )
    is_service = models.BooleanField(
        default=False, help_text="A service account: it has credentials and no log-in."
    )
    can_act_for_owners = models.BooleanField(
        default=False,
        db_default=False,
        help_text="A service account that may act for the owner of a task that it sees.",
    )
    removed_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="A service account that was deleted; its tasks stay.",
    )
    # Which the user had before, and nobody else may choose.
    former_names = models.JSONField(
        default=list, db_default=models.Value([], models.JSONField()), blank=True, editable=False
    )
    time_zone = models.CharField(
        max_length=64, blank=True, help_text="Empty: the time zone of the browser."
    )
    unix_uid = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Processes of this person run under this user id on the nodes; never 0.",
    )
    unix_gid = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="And this group id."
    )

    last_active_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="To the minute."
    )
    is_pending = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Invited, and never signed in.",
    )
    session_nonce = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Every session is bound to it: another one ends them all.",
    )
    keeps_waiting_tasks = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Deactivated, and an administrator left the waiting tasks in line.",
    )

    redacted_variables = models.JSONField(
        default=list,
        blank=True,
        db_default=models.Value([], models.JSONField()),
        help_text=(
            "Patterns such as WANDB_*: values of such variables of this person's tasks are shown "
            "to nobody, in addition to those that the installation hides."
        ),
    )

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=models.Q(unix_uid__isnull=True) | models.Q(unix_uid__gt=0),
                name="user_never_runs_as_root",
                violation_error_message="Processes never run as root on a node.",
            ),
            models.CheckConstraint(
                condition=models.Q(can_act_for_owners=False) | models.Q(is_service=True),
                name="user_acts_for_owners_as_service",
                violation_error_message="Only a service account may act for others.",
            ),
        ]

    def __str__(self) -> str:
        return self.get_full_name() or self.username

    @property
    def status(self) -> PersonStatus:
        """Whether the person may sign in, and ever did."""
        if not self.is_active:
            return PersonStatus.DEACTIVATED
        return PersonStatus.PENDING if self.is_pending else PersonStatus.ACTIVE

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        """Sessions end with the password or the nonce that they began with."""
        bound = f"{self.password}{self.session_nonce}"
        return salted_hmac(_SESSION_SALT, bound, secret=secret, algorithm="sha256").hexdigest()


class GroupInfo(models.Model):
    """The description of a group, and whether it is built in."""

    group = models.OneToOneField(Group, on_delete=models.CASCADE, related_name="info")
    description = models.TextField(blank=True)
    is_built_in = models.BooleanField(default=False, editable=False)

    def __str__(self) -> str:
        return self.group.name
