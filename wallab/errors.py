"""What can go wrong, and the exit code by which a command says so."""


class LabError(Exception):
    """Bad input or usage: the message says what to do. Commands exit with 2."""

    exit_code = 2


class MachineError(LabError):
    """This machine cannot do it: the message says what would help. Commands exit with 3."""

    exit_code = 3
