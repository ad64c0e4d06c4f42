"""Click classes of both command lines: lazily loaded commands, help in groups."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from importlib import import_module
from typing import Any, NamedTuple

from compileboard.exit_codes import INTERRUPTED, REFUSED, UNREAD

try:
    import click
except ModuleNotFoundError:
    raise SystemExit(
        "compileboard: click is not installed; pip install 'compileboard[collector]', or "
        "'compileboard[server]'"
    ) from None

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
NEAR = 0.75  # of SequenceMatcher: a letter wrong in a word of five
DATABASE = "compileboard.database"  # in a context's `meta`


def is_near(given: str, option: str) -> bool:
    """Return whether an unknown option may be a misspelling of one that exists."""
    # Without the dashes: by them alone, click finds --xla and --amp alike.
    word, name = given.lstrip("-").replace("_", "-"), option.lstrip("-")
    return name.startswith(word) or SequenceMatcher(None, word, name).ratio() >= NEAR


class Option(click.Option):
    def __init__(
        self, *words: Any, group: str = "Options", exclusive: str | None = None, **rest: Any
    ) -> None:
        super().__init__(*words, **rest)
        self.group = group
        self.exclusive = exclusive


class Choice(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"invalid choice: {value!r} (choose from {', '.join(map(str, self.choices))})"


class Value(click.ParamType[Any]):
    name = "value"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Command(click.Command):
    """A command whose examples are shown verbatim, with `%(prog)s` for its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            self._check_exclusive(ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            options = [name for param in self.get_params(ctx) for name in param.opts]
            near = [name for name in options if is_near(error.option_name, name)]
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # an option without its value does not know whose it is
            raise

    def _check_exclusive(self, ctx: click.Context, args: list[str]) -> None:
        if any(getattr(param, "exclusive", None) for param in self.params):
            given: dict[str, Option] = {}
            for param in self.make_parser(ctx).parse_args(list(args))[2]:
                if isinstance(param, Option) and param.exclusive:
                    other = given.setdefault(param.exclusive, param)
                    if other is not param:
                        ctx.fail(
                            f"argument {param.opts[0]}: not allowed with argument {other.opts[0]}"
                        )

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta[DATABASE] = ctx.params.get("db")
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                groups.setdefault(getattr(param, "group", "Options"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write("\n" + self.epilog % {"prog": ctx.command_path})


class CommandEntry(NamedTuple):
    target: str
    help: str


class Group(Command, click.Group):
    """Commands that are imported when called.

    `explain` prints an error, given the command's database; it returns False for unknown errors.
    """

    command_class = Command

    def __init__(
        self,
        *words: Any,
        entries: Mapping[str, CommandEntry] | None = None,
        explain: Callable[[Exception, str | None], bool] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(*words, **rest)
        self.entries = entries or {}
        self.explain = explain

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.entries, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return self.commands.get(cmd_name)
        module, _, name = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"invalid choice: {args[0]!r} (choose from {', '.join(names)})")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = click.Group.invoke(self, ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a reader who has left can be met
            return code
        except (click.ClickException, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:
            # The reader has what it wanted. Python flushes stdout once more at exit, which must not
            # fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return UNREAD
        except Exception as error:
            if self.explain is None or not self.explain(error, ctx.meta.get(DATABASE)):
                raise
            return REFUSED

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl(self._list_help(), col_spacing=3)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete command names and options without importing commands."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text)
            for name, text in self._list_help()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def _list_help(self) -> list[tuple[str, str]]:
        entries = [(name, entry.help) for name, entry in self.entries.items()]
        return entries + [
            (name, command.get_short_help_str(1000)) for name, command in self.commands.items()
        ]


def run_group(group: click.Command, words: Sequence[str] | None, program: str) -> int:
    variable = f"_{group.name}_COMPLETE".replace("-", "_").upper()
    try:
        return (
            group.main(words, prog_name=program, complete_var=variable, standalone_mode=False) or 0
        )
    except click.ClickException as error:
        if sys.stderr is not None:  # click would take stdout
            error.show()
        return error.exit_code
