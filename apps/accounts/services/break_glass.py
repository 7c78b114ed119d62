"""The one administrator who can log in with a password while passwords are off."""

from apps.accounts.models import User
from apps.accounts.selectors import is_break_glass
from apps.core.errors import Conflict


def break_glass_check(person: User) -> None:
    """Refuse to remove what the break-glass administrator needs to sign in and administer.

    Raises:
        Conflict: passwords are switched off for everybody but them.
    """
    if is_break_glass(person):
        raise Conflict(
            f"{person.username} is the break-glass administrator, the only one who may log in with "
            "a password: choose another one under “Logging in” first."
        )
