"""Groups: of options, in the help of commands that have many, and of commands."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

import click

from tailback.cli.result import RefusedValueError
from tailback.errors import nearest

GROUPS = {
    "Input": (
        "inputs",
        "recover",
        "mpicc",
        "build",
        "name",
        "side",
        "host",
        "over",
        "part",
        "reader",
        "last",
        "every",
        "tick",
        "ca",
        "ca_port",
        "sl",
        "switches_only",
        "hosts",
        "ranks_per_host",
        "rankfile",
        "placement",
        "ranks",
        "compute_scale",
        "seed",
    ),
    "Network": (
        "fabric",
        "cable_rate",
        "taper",
        "forwarding",
        "calibration",
        "local_rate",
        "memory_rate",
        "subsystems",
        "rediscover",
        "geometry",
        "direction",
        "slow_cables",
        "scheme",
        "written",
        "secret",
        "like",
    ),
    "Evidence": (
        *("counters", "jobs", "load", "samples", "contexts", "congestion", "forecast"),
        *("span", "threshold", "muted"),
    ),
    "Remedy": ("remedy", "remedies", "methods", "allow_hosts", "seeds", "simulated"),
    "Cost": (
        "model",
        "budget",
        "skip_repeats",
        "coarse",
        "threads",
        "workers",
        "dask",
        "slurm",
        "cluster",
        "interval",
        "duration",
        "sweeps",
        "rate",
        "timeout",
        "retries",
        "byte_ranges",
        "clocks_every",
        "wait",
    ),
    "Output": (
        "out",
        "page",
        "csv",
        "metrics",
        "compact_only",
        "tables",
        "limit",
        "payload",
        "once",
        "force",
        "update",
        "verbose",
        "evidence",
        "form",
        "figures",
        "profile",
        "quiet",
        "help_all",
    ),
}
"""Names of options in each group, in the order in which the help lists them."""

COMMON = {
    *("fabric", "hosts", "rankfile", "placement", "compute_scale"),
    *("counters", "jobs", "congestion", "forecast", "budget", "methods", "simulated", "model"),
    *("over", "workers", "dask", "slurm", "part", "tables"),
    *("last", "threshold", "page", "interval", "duration", "metrics", "compact_only"),
    *("load", "slow_cables", "inputs", "recover", "name", "side", "host", "limit", "span", "once"),
    *("geometry", "direction", "scheme", "written", "secret", "like", "remedy", "figures"),
    *("out", "force", "verbose", "form"),
}
"""Options that ``--help`` lists; ``--help-all`` lists every one."""

RARE = {
    "diagnose": {
        *("placement", "compute_scale", "methods", "workers", "dask", "slurm"),
        *("force", "figures"),
    },
    "place": {"compute_scale"},
    "sweep": {"hosts", "rankfile", "placement", "compute_scale"},
}
"""Of these, those that a command needs too rarely to list them."""


def is_common(command: str | None, option: str | None) -> bool:
    """Whether ``--help`` of a command lists an option."""
    return option in COMMON and option not in RARE.get(str(command), ())


def first_sentence(text: str) -> str:
    """What ``--help`` says of an option; ``--help-all`` says all of it."""
    return f"{text.partition('. ')[0].removesuffix('.')}."


class GroupedHelp(click.Command):
    """A command whose ``--help`` lists common options, and ``--help-all`` every option.

    ``--help`` names ``--help-all`` if that prints more.
    """

    lists_all = False

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, with the option of the full help last, if help is an option at all."""
        return [*super().get_params(ctx), *([_HELP_ALL] if ctx.help_option_names else [])]

    def full_help(self, ctx: click.Context) -> str:
        """The help with every option."""
        self.lists_all = True
        try:
            return self.get_help(ctx)
        finally:
            self.lists_all = False

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description: of its paragraphs, ``--help`` has the first, second and last."""
        text, brief = self.help, brief_text(self.help)
        if not self.lists_all:
            self.help = brief
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = text

    def _lists(self, option: click.Option) -> bool:
        """Whether the help lists an option."""
        if option is _HELP_ALL:
            return self._leaves_out
        return self.lists_all or is_common(self.name, option.name)

    @property
    def _leaves_out(self) -> bool:
        """Whether ``--help`` leaves something out."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        return brief_text(self.help) != self.help or any(
            not is_common(self.name, option.name) or _brief(option).help != option.help
            for option in options
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        options = {
            option.name: option if self.lists_all else _brief(option)
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and self._lists(option)
        }
        last, help_option = list(GROUPS)[-1], self.get_help_option(ctx)
        for group, names in GROUPS.items():
            shown = [options[name] for name in names if name in options]
            if group == last and help_option is not None:
                shown.append(help_option)
            rows = [row for option in shown if (row := option.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command names the nearest one."""

    command_class = GroupedHelp

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            remedy = nearest(args[0], self.list_commands(ctx))
            raise RefusedValueError(f"there is no command {args[0]!r}", remedy, ctx=ctx)
        return super().resolve_command(ctx, args)


P = TypeVar("P", bound=click.Parameter)


def _brief(parameter: P) -> P:
    """An option with the first sentence of its help."""
    out = copy(parameter)
    if isinstance(out, click.Option) and out.help:
        out.help = first_sentence(out.help)
    return out


def brief_text(text: str | None) -> str | None:
    """The first, second and last paragraph of a description."""
    paragraphs = (text or "").split("\n\n")
    return text if len(paragraphs) <= 3 else "\n\n".join([*paragraphs[:2], paragraphs[-1]])


def _show_full_help(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and isinstance(ctx.command, GroupedHelp):
        click.echo(ctx.command.full_help(ctx))
        ctx.exit()


_OPTIONS: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
_HELP_ALL = click.Option(
    ["--help-all"], help="Show every option and exit.", callback=_show_full_help, **_OPTIONS
)
