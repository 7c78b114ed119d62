"""The live topic of notices."""


def notices_topic(user_id: int) -> str:
    """Announced when the notices of this user change."""
    return f"notices.{user_id}"
