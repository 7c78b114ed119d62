"""A script of this machine as the command of a task, with options in its lines `#RPM`."""

import re
import shlex
from collections.abc import Iterator
from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand

from rpm_client.cli.task_options import PARAMETERS, described, file_text

# docs/bounds.md: bytes of one argument.
ARGUMENT_BYTES = 131_071
DIRECTIVE = re.compile(r"#RPM(?:\s+(.*))?$")
SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
# Its class has no name of its own that all versions of typer have.
USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
IS_COMMAND = "rpm_client.is_command"


class SubmitCommand(TyperCommand):
    """Options, then a script with its arguments, or `--` and a command for the container."""

    def make_parser(self, ctx: Any) -> Any:
        # What comes after the script belongs to the script.
        ctx.allow_interspersed_args = False
        return super().make_parser(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or []
        ahead = given[: len(given) - len(words)]
        ctx.meta[IS_COMMAND] = bool(words) and ahead[-1:] == ["--"]
        return rest


def script_command(path: str, text: str, arguments: list[str]) -> list[str]:
    """The command that runs the text of a script with its arguments, by its first line.

    Raises:
        BadParameter: it is too large, or of a language that cannot be given as an argument.
    """
    size = len(text.encode())
    if size > ARGUMENT_BYTES:
        raise typer.BadParameter(
            f"{path} has {size} bytes, at most {ARGUMENT_BYTES} can be sent: put it into the image "
            "or on a volume, and give its command after --."
        )
    first = text.partition("\n")[0]
    interpreter = shlex.split(first[2:]) if first.startswith("#!") else ["/bin/sh"]
    program = [word.rpartition("/")[2] for word in interpreter if not word.startswith("-")]
    named = program[1] if program[:1] == ["env"] and len(program) > 1 else "".join(program[:1])
    if named in SHELLS:
        # The first word after the text is $0.
        return [*interpreter, "-c", text, path.rpartition("/")[2], *arguments]
    if named.startswith("python"):
        return [*interpreter, "-c", text, *arguments]
    raise typer.BadParameter(
        f"{path} begins with {first!r}: only scripts of a shell or of Python can be sent. Put it "
        "into the image, and give its command after --."
    )


def directives(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the words of each line `#RPM`; they stand before the first command."""
    is_over = False
    for number, line in enumerate(text.splitlines(), 1):
        found = DIRECTIVE.match(line)
        if found and is_over:
            raise typer.BadParameter(
                f"{path}, line {number}: #RPM stands after the first command: move it up."
            )
        if found:
            try:
                yield number, shlex.split(found[1] or "", comments=True)
            except ValueError as error:
                raise typer.BadParameter(f"{path}, line {number}: {error}.") from None
        is_over = is_over or bool(line.strip() and not line.lstrip().startswith("#"))


def script_fields(command: Any, path: str, text: str) -> dict[str, Any]:
    """The fields of a task that all lines `#RPM` name, read as the command reads its options.

    Raises:
        BadParameter: naming the line that is wrong.
    """
    # Alone first, so that a mistake has its line.
    lines = [
        (words, _parse(command, words, f"{path}, line {number}"), number)
        for number, words in directives(path, text)
    ]
    try:
        return described(_parse(command, [word for words, _, _ in lines for word in words], path))
    except typer.BadParameter as error:
        problem = error.format_message()
        line = next((number for _, params, number in lines if _problem(params) == problem), None)
        where = path if line is None else f"{path}, line {line}"
        raise typer.BadParameter(f"{where}: {problem}") from None


def read_script(path: str) -> str:
    """The text of the script, without the marks that other systems put at line ends."""
    return file_text(path, "SCRIPT").replace("\r\n", "\n")


def _parse(command: Any, words: list[str], where: str) -> dict[str, Any]:
    """The options of the task among the parameters of a command."""
    of_task = copy(command)
    of_task.params = [one for one in command.params if one.name in PARAMETERS | {"words"}]
    of_task.add_help_option = False
    try:
        params: dict[str, Any] = of_task.make_context(command.name, list(words)).params
    except USAGE_ERROR as error:
        option = getattr(error, "option_name", "")
        others = [one for one in command.params if one not in of_task.params]
        if option in {"--help", *(name for one in others for name in _names(one))}:
            raise typer.BadParameter(
                f"{where}: {option} is no option of a task: give it on the command line."
            ) from None
        raise typer.BadParameter(f"{where}: {error.format_message()}") from None
    if params.get("words"):
        raise typer.BadParameter(f"{where}: {' '.join(params['words'])!r} is no option.")
    return params


def _names(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def _problem(params: dict[str, Any]) -> str:
    """What is wrong with the values of these options; empty where nothing is."""
    try:
        described(params)
    except typer.BadParameter as error:
        return error.format_message()
    return ""
