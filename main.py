"""The `flipscope` command: dispatch only, one module per command in `commands/`."""

from __future__ import annotations

import sys

from commands import cli
from commands.failure import show_failure
from probe.errors import FlipscopeError


def main() -> None:
    """Run the command line; errors that a user can act on end in a panel on stderr, never in a traceback."""
    try:
        cli.app()
    except FlipscopeError as error:
        if "--debug" in sys.argv:
            raise
        show_failure(error)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # `flipscope … | head`: nobody reads on
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:  # stdout on a full disk, a working folder that is gone
        if "--debug" in sys.argv:
            raise
        show_failure(
            FlipscopeError(str(error), title="The system refused", hint="--debug before the command shows where")
        )
        raise SystemExit(FlipscopeError.exit_code) from None


if __name__ == "__main__":
    main()
