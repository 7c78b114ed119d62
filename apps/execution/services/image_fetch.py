"""Having an image on a node, exactly the one that its attempt runs, before anything is launched.

A registry is asked with what the group of the attempt's policy has for it. Its password is opened
here, for the one request that needs it, and goes to the node on the standard input of the channel.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from apps.core.images import ImageName
from apps.core.keyring import CannotUnseal
from apps.execution.client import NodeClient
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import PullRequest, RegistryLogin, RuntimeName
from apps.policies.selectors import RegistryAccess, registry_access
from apps.tasks.services.attempts.images import ImageIdentity

# Most pulls of a layer or two are over by then; longer ones are polled, and hold no thread.
FIRST_WAIT_S = 0.5
# Earlier releases of the helper know no poll: the answer to a pull that has ended is lost on them.
OLD_WAIT_S = 20.0
# What runtimes say of a registry that is away for the moment; a name that is wrong is not in it.
PASSING = re.compile(
    r"connection (refused|reset)|timeout|timed out|no route to host|network is unreachable"
    r"|temporary failure|server misbehaving|unexpected EOF|too ?many ?requests"
    r"|\b(429|500|502|503|504)\b",
    re.IGNORECASE,
)
# For so long a resolved name is valid: asking costs an exchange per launch.
KNOWN_S = 60.0


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """An image by its name, for a group, and what the attempt is known to run under it.

    `polled`: the pull that an earlier request found under way.
    """

    image: ImageName
    runtime: RuntimeName
    group_id: int
    noted: ImageIdentity
    polled: "FetchRunning | None" = None


@dataclass(frozen=True, slots=True)
class ImageReady:
    """It is there; `was_known`: the node was not asked this time."""

    image: ImageIdentity
    was_known: bool = False


@dataclass(frozen=True, slots=True)
class ImageUnavailable:
    """It cannot be had under this name, in the node's words.

    `is_runtimes`: they are its runtime's, which may start nothing at all.
    """

    detail: str
    is_runtimes: bool = False


@dataclass(frozen=True, slots=True)
class FetchDeferred:
    """The node could not be asked, or its registry (`is_registrys`): it is tried again."""

    detail: str
    is_registrys: bool = False


@dataclass(frozen=True, slots=True)
class FetchRunning:
    """The node is fetching it; it is to be asked again. `pull_id` as the node answered."""

    pull_id: str


@dataclass(frozen=True, slots=True)
class LaunchCancelled:
    """The member is not to be launched any more."""


FetchOutcome = ImageReady | ImageUnavailable | FetchDeferred | FetchRunning | LaunchCancelled
# The image, the credentials it is fetched with, and what is known of it.
_Key = tuple[ImageName, str, str, bool]

_KnownImages = dict[_Key, tuple[ImageIdentity, float]]

# Replaced as a whole, never changed: several exchanges with one node go on at once.
_known_images: WeakKeyDictionary[NodeClient, _KnownImages] = WeakKeyDictionary()


def image_fetch(
    client: NodeClient,
    wanted: ImageRequest,
    *,
    keep: Callable[[str], bool],
    note: Callable[[ImageIdentity], ImageIdentity],
) -> FetchOutcome:
    """Make the image present, or hear how far that is.

    Args:
        keep: called with the progress of a pull under way; False ends the fetch.
        note: called with the image found; answers which one the attempt runs.
    """
    access = registry_access(group_id=wanted.group_id, image=wanted.image)
    digest = wanted.noted.digest
    while True:
        outcome = _one(client, wanted, access, digest, keep)
        if not isinstance(outcome, ImageReady):
            return outcome
        noted = note(outcome.image)
        if noted.is_same(outcome.image):
            return outcome
        if digest or not noted.digest:
            return ImageUnavailable(
                f"Image {wanted.image}: this attempt runs {noted.image_id}, and its node has "
                f"another one under that name, {outcome.image.image_id}."
            )
        # Another member was faster, and found another image under the name.
        digest = noted.digest


def image_digest_forget(client: NodeClient, image: ImageName) -> None:
    """Ask the node again next time."""
    known = _known_images.get(client, {})
    _known_images[client] = {key: one for key, one in known.items() if key[0] != image}


def _one(
    client: NodeClient,
    wanted: ImageRequest,
    access: RegistryAccess,
    digest: str,
    keep: Callable[[str], bool],
) -> FetchOutcome:
    key = (wanted.image, digest, access.revision, access.is_guarded)
    image, until = _known_images.get(client, {}).get(key, (ImageIdentity(), 0.0))
    if until > time.monotonic():
        return ImageReady(image, was_known=True)
    try:
        request = _request(client, wanted, access, digest)
    except CannotUnseal as error:
        return ImageUnavailable(f"The password for {wanted.image.registry} cannot be read. {error}")
    outcome = _pulled(client, wanted, request, keep)
    if isinstance(outcome, ImageReady):
        # Under its digest too: so it is asked for when this launch has to be sent again.
        _remember(client, outcome.image, {key, (key[0], outcome.image.digest, *key[2:])})
    return outcome


def _remember(client: NodeClient, image: ImageIdentity, keys: Iterable[_Key]) -> None:
    now = time.monotonic()
    known = {key: one for key, one in _known_images.get(client, {}).items() if one[1] > now}
    _known_images[client] = known | dict.fromkeys(keys, (image, now + KNOWN_S))


def _request(
    client: NodeClient, wanted: ImageRequest, access: RegistryAccess, digest: str
) -> PullRequest:
    row = access.credential
    return PullRequest(
        installation=client.installation,
        runtime=wanted.runtime,
        image=str(wanted.image),
        digest=digest,
        login=RegistryLogin(wanted.image.registry, row.username, access.password(), access.revision)
        if row
        else None,
        # What one group has fetched is not for every other: the registry decides.
        always=access.is_guarded,
        wait_s=_wait_s(wanted.polled),
        pull_id=wanted.polled.pull_id if wanted.polled else "",
    )


def _wait_s(polled: FetchRunning | None) -> float:
    if polled is None:
        return FIRST_WAIT_S
    return 0.0 if polled.pull_id else OLD_WAIT_S


def _pulled(
    client: NodeClient, wanted: ImageRequest, request: PullRequest, keep: Callable[[str], bool]
) -> FetchOutcome:
    outcome = client.pull(request)
    if not isinstance(outcome, Answered):
        return FetchDeferred(outcome.detail)
    answer = outcome.answer
    if answer.state == "present":
        return ImageReady(ImageIdentity(answer.digest, answer.image_id))
    if answer.state == "pulling":
        is_wanted = keep(f"Fetching the image. {answer.progress}".strip())
        return FetchRunning(answer.pull_id) if is_wanted else LaunchCancelled()
    exactly = f"this attempt runs {request.digest}, which its node cannot get. "
    words = f"{exactly if request.digest else ''}{answer.progress}"
    if PASSING.search(answer.progress):
        return FetchDeferred(f"Image {wanted.image}: {words}", is_registrys=True)
    return ImageUnavailable(f"Image {wanted.image}: {words}", is_runtimes=True)
