"""The values that vaults give a task: for its launch, and for its owner to read."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.containers import environment_problems
from apps.core.errors import BadInput, NotFound, RpmError
from apps.core.keyring import HIDDEN
from apps.tasks.lifecycle.states import ADMITTED_STATES, LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt, Task
from apps.tasks.redaction import is_secret, secret_names
from apps.tasks.selectors.secrets import readable_secrets, task_secrets
from apps.tasks.task_spec import TaskSpec
from apps.vaults.contents import (
    CONTAINER,
    CONTAINER_FIELDS,
    ENVIRONMENT,
    FILE_NAME,
    environment_of,
    rest_of,
)
from apps.vaults.layers import Layer, ValueOrigin, enforced_part, merge_layers, values_of
from apps.vaults.selectors.effective import VaultRef, layers_of, vaults_applying_to
from apps.vaults.text.bounds import SECRETS, Path

# podman keeps no secret that is longer.
FILE_BYTES = 500_000
MOST_SECRETS = 256
# The output of an ended attempt arrives late where its node was unreachable.
WRITES_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class VaultValue:
    """One value of a vault, as it is shown; `is_used`: the task does not set it itself.

    `value` is stars where it is a secret, or of another user's personal vault.
    """

    path: str
    value: Any = field(repr=False)
    origin: ValueOrigin
    is_used: bool


@dataclass(frozen=True, slots=True)
class EffectiveVault:
    """The values that vaults give a task: as of an attempt, or as of now (`generation` None)."""

    generation: int | None
    values: tuple[VaultValue, ...]


def vault_refs_of(noted: Sequence[Sequence[object]] | None) -> list[VaultRef]:
    """The ids and versions in `Attempt.vaults`."""
    return [(UUID(str(vault_id)), int(str(version))) for vault_id, version in noted or []]


def vault_versions_in_use() -> set[VaultRef]:
    """Versions of attempts that may still be launched, or may still write output."""
    recent = timezone.now() - WRITES_FOR
    may_write = Q(state__in=LIVE_ATTEMPT_STATES) | Q(ended_at__gte=recent)
    noted = Attempt.objects.filter(may_write, vaults__isnull=False).exclude(vaults=[])
    return {one for kept in noted.values_list("vaults", flat=True) for one in vault_refs_of(kept)}


def launch_spec(task: Task, used: Sequence[VaultRef]) -> TaskSpec:
    """The spec with opened secrets and these vaults: enforced entries win over its own.

    All values of vaults that are neither variables nor secrets come as one JSON file, a secret.

    Raises:
        BadInput: all together are more than a container takes.
        CannotUnseal: something was sealed with a key that is gone, or for another place.
        VaultGone: one of the vaults is not there any more.
    """
    layers = layers_of(used)
    own = msgspec.structs.replace(task.spec, secrets=task_secrets(task))
    return _with_vaults(own, layers) if layers else own


def hidden_values(task: Task, used: Sequence[VaultRef], own: Sequence[str]) -> list[str]:
    """Values to hide in the output of the task; those that cannot be opened are left out.

    Args:
        own: patterns of the owner for variables whose values are hidden.
    """
    environment = task.spec.environment
    values = [environment[name] for name in secret_names(environment, own)]
    values += readable_secrets(task)
    for layer in _readable_layers(used):
        values += layer.data.get(SECRETS, {}).values()
        variables = environment_of(layer.data)
        values += [variables[name] for name in secret_names(variables, own)]
    return values


def _readable_layers(used: Sequence[VaultRef]) -> list[Layer]:
    """The vaults that can be opened."""
    try:
        return layers_of(used)
    except RpmError:
        found = []
        for one in used:
            with suppress(RpmError):
                found += layers_of([one])
        return found


def effective_vault(user: User, task: Task, generation: int | None = None) -> EffectiveVault:
    """The values that vaults give the task, each with its vault; secrets are hidden.

    Args:
        generation: of an attempt; None is the last one while it holds something, else now.

    Raises:
        NotFound: only its owner and administrators read it, and there is no such attempt.
        CannotUnseal: a vault was sealed with a key that is gone, or for another place.
        VaultGone: a vault of this attempt is not there any more.
    """
    if user.pk != task.owner_id and not is_admin(user):
        raise NotFound("There is no such thing, or you may not see it.")
    attempt = _attempt(task, generation)
    used = _applying(task) if attempt is None else vault_refs_of(attempt.vaults)
    whole = merge_layers(layers_of(used))
    rows = [
        VaultValue(
            path=".".join(_quoted(key) for key in path),
            value=HIDDEN if _is_hidden(user, task, path, origin) else value,
            origin=origin,
            is_used=origin.is_enforced or not _says_itself(task, path),
        )
        for path, value, origin in values_of(whole)
    ]
    return EffectiveVault(attempt.generation if attempt else None, tuple(rows))


def vaults_have_image(owner_id: int, *, tenant_id: int | None, is_by_owner: bool) -> bool:
    """Whether vaults that can be opened give an image to a task that names none."""
    used = vaults_applying_to(owner_id, tenant_id=tenant_id, is_by_owner=is_by_owner)
    try:
        layers = [
            replace(layer, data={CONTAINER: layer.data.get(CONTAINER, {})})
            for layer in layers_of(used)
        ]
    except RpmError:
        return True
    return bool(merge_layers(layers).data.get(CONTAINER, {}).get("image"))


def _applying(task: Task) -> list[VaultRef]:
    """The vaults that would apply now; none of a tenant for a draft without a queue."""
    tenant_id = task.queue.policy.tenant_id if task.queue is not None else None
    return vaults_applying_to(task.owner_id, tenant_id=tenant_id, is_by_owner=task.is_by_owner)


def _with_vaults(own: TaskSpec, layers: Sequence[Layer]) -> TaskSpec:
    whole, forced = merge_layers(layers).data, enforced_part(layers).data
    variables = {
        name: value for name, value in environment_of(whole).items() if name not in own.secrets
    }
    environment = {**variables, **own.environment, **environment_of(forced)}
    of_vaults = {
        name: value
        for name, value in whole.get(SECRETS, {}).items()
        if not {name, f"{name}_FILE"} & own.environment.keys()
    }
    secrets = {**of_vaults, **own.secrets, **forced.get(SECRETS, {})}
    rest = rest_of(whole)
    file = json.dumps(rest, ensure_ascii=False, indent=1) if rest else ""
    _check_fits(environment, secrets, file)
    container, must = whole.get(CONTAINER, {}), forced.get(CONTAINER, {})
    return msgspec.structs.replace(
        own,
        image=must.get("image") or own.image or container.get("image", ""),
        command=list(must.get("command") or own.command or container.get("command", ())),
        working_dir=must.get("working_dir") or own.working_dir or container.get("working_dir", ""),
        environment=environment,
        secrets={**secrets, FILE_NAME: file} if file else secrets,
    )


def _check_fits(environment: Mapping[str, str], secrets: Mapping[str, str], file: str) -> None:
    problems = environment_problems(environment)
    size = len(file.encode())
    if size > FILE_BYTES:
        problems["vaults"] = f"bring a file of {size} bytes: at most {FILE_BYTES} in all"
    if len(secrets) > MOST_SECRETS:
        problems["secrets"] = f"are {len(secrets)} with those of vaults: {MOST_SECRETS} fit"
    if problems:
        words = "; ".join(f"{name} {problem}" for name, problem in problems.items())
        raise BadInput(f"Task and vaults together: {words}.", fields=problems)


def _attempt(task: Task, generation: int | None) -> Attempt | None:
    noted = Attempt.objects.filter(task=task, vaults__isnull=False).order_by("-generation")
    if generation is not None:
        found = noted.filter(generation=generation).first()
        if found is None:
            raise NotFound(f"There is no attempt {generation} that was launched.")
        return found
    return noted.first() if task.state in ADMITTED_STATES else None


def _is_hidden(user: User, task: Task, path: Path, origin: ValueOrigin) -> bool:
    is_owner = user.pk == task.owner_id and user.acted_by_id is None
    if path[0] == SECRETS or (origin.is_personal and not is_owner):
        return True
    is_variable = path[0] == ENVIRONMENT and len(path) > 1
    return is_variable and is_secret(path[1], task.owner.redacted_variables)


def _says_itself(task: Task, path: Path) -> bool:
    """Whether the task sets it, so that a vault does not."""
    if len(path) < 2:
        return False
    name, spec = path[1], task.spec
    if path[0] == ENVIRONMENT:
        return name in spec.environment or name in task.secrets
    if path[0] == SECRETS:
        return name in task.secrets or bool({name, f"{name}_FILE"} & spec.environment.keys())
    return path[0] == CONTAINER and name in CONTAINER_FIELDS and bool(getattr(spec, name))


def _quoted(key: str) -> str:
    """A key as a part of a path; in quotes where it would read as several."""
    return key if key and "." not in key and '"' not in key else json.dumps(key)
