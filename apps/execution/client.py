"""Sends requests to nodes, and turns every possible end of an exchange into an outcome."""

from typing import TypeAlias, TypeVar

from apps.execution.bundle import install_program
from apps.execution.protocol import answers, requests
from apps.execution.protocol.outcomes import (
    Answered,
    ImageMissing,
    NodeRefusal,
    NodeUnreachable,
    StartFailed,
)
from apps.execution.transport.base import NodeTransport, TransportError

# On top of what the request itself may wait on the node.
EXCHANGE_TIMEOUT_S = 30.0
INSTALL_TIMEOUT_S = 60.0
# Import, start and removal each have a time limit on the node; another one may be under way.
PREFLIGHT_TIMEOUT_S = 180.0

T = TypeVar("T")

Outcome: TypeAlias = Answered[T] | NodeRefusal | NodeUnreachable
LaunchOutcome: TypeAlias = Outcome[answers.LaunchAnswer] | ImageMissing | StartFailed


class NodeClient:
    """One node of one installation, over whatever transport.

    Args:
        installation: the control plane's own id; the helper refuses every other.
    """

    def __init__(self, transport: NodeTransport, installation: str) -> None:
        self.transport = transport
        self.installation = installation

    def install(
        self,
        *,
        home: str = "",
        environment: dict[str, str] | None = None,
        known: dict[str, str] | None = None,
        has_streams: bool = True,
    ) -> answers.InstallAnswer:
        """Put this version of the helper on the node; safe to repeat, also under way.

        Raises:
            TransportError: the node was not reached.
            MalformedAnswer: it was, and said why it cannot.
        """
        program = install_program(
            self.installation,
            home=home,
            environment=environment,
            known=known,
            has_streams=has_streams,
        )
        content = self.transport.install(program, timeout_s=INSTALL_TIMEOUT_S)
        return answers.decode_installed(content)

    def hello(self) -> tuple[answers.Clocks, answers.HelloAnswer | answers.Refusal]:
        """Ask which helper is installed; an earlier release refuses that, in its own name.

        Raises:
            TransportError: the node was not reached, or (`ProgramFailed`) has no helper.
            MalformedAnswer: what answered is no helper.
        """
        request = requests.encode(requests.HelloRequest(installation=self.installation))
        content = self.transport.exchange(request, timeout_s=EXCHANGE_TIMEOUT_S)
        return answers.decode(content, answers.HelloAnswer)

    def probe(self, request: requests.ProbeRequest) -> Outcome[answers.NodeInventory]:
        """Ask for the inventory."""
        return self._ask(request, answers.NodeInventory)

    def preflight(self, request: requests.PreflightRequest) -> Outcome[answers.PreflightAnswer]:
        """Have the node start a container of its own."""
        return self._ask(request, answers.PreflightAnswer, wait_s=PREFLIGHT_TIMEOUT_S)

    def pull(self, request: requests.PullRequest) -> Outcome[answers.PullAnswer]:
        """Make an image present, or hear how far it is."""
        return self._ask(request, answers.PullAnswer, wait_s=request.wait_s)

    def launch(self, request: requests.LaunchRequest) -> LaunchOutcome:
        """Start a member. Repeating the same request is safe and gives the same member's state."""
        outcome = self._ask(request, answers.LaunchAnswer, wait_s=request.start_wait_s)
        if isinstance(outcome, NodeRefusal) and outcome.code == "image_missing":
            return ImageMissing(outcome.detail, outcome.clocks)
        if isinstance(outcome, NodeRefusal) and outcome.code == "start_failed":
            return StartFailed(outcome.detail, outcome.clocks)
        return outcome

    def sync(self, request: requests.SyncRequest) -> Outcome[answers.SyncReport]:
        """Get the node's report, waiting for news up to the request's `wait_s`."""
        return self._ask(request, answers.SyncReport, wait_s=request.wait_s)

    def stop(self, request: requests.StopRequest) -> Outcome[answers.StopAnswer]:
        """Ask a member to end; its end arrives through `sync`."""
        return self._ask(request, answers.StopAnswer)

    def forget(self, request: requests.ForgetRequest) -> Outcome[answers.ForgetAnswer]:
        """Remove the last traces of tasks that are over."""
        return self._ask(request, answers.ForgetAnswer)

    def _ask(
        self, request: requests.NodeRequest, kind: type[T], *, wait_s: float = 0
    ) -> Outcome[T]:
        try:
            content = self.transport.exchange(
                requests.encode(request), timeout_s=EXCHANGE_TIMEOUT_S + wait_s
            )
            clocks, answer = answers.decode(content, kind)
        except TransportError as error:
            return NodeUnreachable(str(error), error.may_have_arrived)
        except answers.MalformedAnswer as error:
            return NodeUnreachable(
                f"the node's answer makes no sense: {error}", may_have_arrived=True
            )
        if isinstance(answer, answers.Refusal):
            return NodeRefusal(answer.code, answer.detail, clocks)
        return Answered(answer, clocks)
