"""How a command ends: its exit code and its last words."""

import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click

from wallab.errors import LabError, MachineError

INTERRUPTED = 130

FAULT = 70
"""The lab itself is wrong (EX_SOFTWARE of sysexits.h): not to be taken for a gate that failed."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def run(command: click.Command, name: str) -> NoReturn:
    """Run the command and exit: 0 done, 1 a gate failed, 2 bad input, 3 the machine, 130 Ctrl-C."""
    # A plain kill ends it as cleanly as Ctrl-C does; what nohup made deaf stays deaf.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        # Not by command.main, which would end with 1 where a reader has enough.
        with command.make_context(f"scripts/{name}", sys.argv[1:]) as context:
            code = command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as error:
        error.show()
        sys.exit(LabError.exit_code)
    except (click.Abort, KeyboardInterrupt):
        own_line = "\n" if sys.stderr.isatty() else ""
        print(f"{own_line}{name}: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except LabError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever reads has enough; what is left to be flushed has no reader either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{name}: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(MachineError.exit_code)
    except Exception:
        traceback.print_exc()
        sys.exit(FAULT)
    sys.exit(code if isinstance(code, int) else 0)
