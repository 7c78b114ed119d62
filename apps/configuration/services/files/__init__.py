"""Configuration files: exporting them, what they would change, and applying them."""

from apps.configuration.services.files.apply import (
    Applied,
    configuration_apply,
    configuration_diff,
)
from apps.configuration.services.files.export import configuration_export

__all__ = ["Applied", "configuration_apply", "configuration_diff", "configuration_export"]
