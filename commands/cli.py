"""The command line: which commands there are. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from commands import capture, demo, view

app = typer.Typer(
    name="flipscope",
    help="Is it still the same model? Compare LLM runtimes token by token.",
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def bundled(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Is it still the same model? Without a command: open the bundled captures."""
    if version:
        from probe.version import __version__

        typer.echo(f"flipscope {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        view.open_bundled()


app.command("view")(view.view)
app.command("capture")(capture.capture)
app.command("demo")(demo.demo)
