"""The few errors a user of isthmus meets.

Each carries three things: what happened (the message), to which object (`subject`), and the next command to type
(`remedy`). The command line prints exactly these; a traceback goes to the log file. A real error is never replaced
by another: wrap with `raise ... from error`.
"""


class IsthmusError(Exception):
    """Base of every error that the command line reports in one sentence.

    Args:
        message: what happened, a full sentence.
        subject: the object it happened to, as the user knows it ("stack aws-sim", "pod ddp-digits-worker-0").
        remedy: the next command or setting, or "" when there is none.
    """

    exit_code = 1

    def __init__(self, message: str, *, subject: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.remedy = remedy


class NotFound(IsthmusError):
    """The named object does not exist."""


class NoCapacity(IsthmusError):
    """The cloud has no such machine in that place now (a stock-out). Another zone or a later try may work."""


class QuotaExceeded(IsthmusError):
    """The account may not have this many. Trying elsewhere in the same region does not help."""


class NotReady(IsthmusError):
    """The object exists but did not become usable within its time limit."""


class InvalidSpec(IsthmusError):
    """A setting, workload or argument is wrong. Raised before anything changes."""

    exit_code = 2


class Refused(IsthmusError):
    """A check refused the request before anything changed."""

    exit_code = 3
