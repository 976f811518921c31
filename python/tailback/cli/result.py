"""The result of a command on stdout, and the exit code that goes with it."""

from __future__ import annotations

import click

EXIT_OK, EXIT_REFUTED, EXIT_USER, EXIT_UNDETERMINED, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
"""Done; a prediction that did not hold; a mistake of the user; no verdict; Ctrl-C."""

EXIT_OWN_FAILURE = 125
"""``record`` failed itself, as of env, nohup and timeout: the codes of programs are mostly smaller.
"""


class StdoutClosedError(Exception):
    """The reader of stdout closed the pipe, as ``head`` does.

    Attributes:
        code: Exit code of the command's result, whether or not its output is read.
    """

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class RefusedValueError(click.BadParameter):
    """A value of an option that cannot be, with its remedy.

    Attributes:
        remedy: What to write.
    """

    def __init__(
        self,
        message: str,
        remedy: str,
        param: click.Parameter | None = None,
        ctx: click.Context | None = None,
    ) -> None:
        super().__init__(message, ctx, param)
        self.remedy = remedy


def show(text: str, code: int) -> int:
    """Print what a command found, and return its exit code.

    Raises:
        StdoutClosedError: The reader closed the pipe; the exit code stays.
    """
    try:
        click.echo(text)
    except BrokenPipeError:
        raise StdoutClosedError(code) from None
    return code
