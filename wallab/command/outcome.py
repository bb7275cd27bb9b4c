"""How a command ends: its exit code and its last words."""

import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from wallab.errors import LabError

INTERRUPTED = 130


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def run(command: click.Command, name: str) -> NoReturn:
    """Run the command and exit: 0 done, 1 a gate failed, 2 bad input, 3 the machine, 130 Ctrl-C."""
    # A plain kill ends it as cleanly as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        code = command.main(prog_name=f"scripts/{name}", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except LabError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)
