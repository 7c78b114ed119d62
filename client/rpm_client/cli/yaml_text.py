"""Values that people write in YAML, as JSON takes them."""

import json
from importlib import import_module
from typing import Any

TIME = "tag:yaml.org,2002:timestamp"


def yaml_value(text: str) -> Any:
    """The value; a date such as 2026-11-01 stays text.

    Raises:
        ValueError: it is not YAML, or it is what JSON does not have.
    """
    # Reading YAML takes long to import, and few commands need it.
    yaml = import_module("yaml")
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.yaml_implicit_resolvers = {
        first: [one for one in rules if one[0] != TIME]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        # A subclass of the safe loader.
        found = yaml.load(text, loader)
        json.dumps(found, allow_nan=False)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    return found
