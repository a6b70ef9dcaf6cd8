"""Errors a user can act on: what happened, where, and what to do."""

from __future__ import annotations


class FlipscopeError(Exception):
    """Base of every error that is shown to a user instead of a traceback.

    Attributes:
        title: What happened, in a few words.
        detail: Where, and with which values.
        hint: What to do about it; may be empty.
        exit_code: Exit status of a command that ends with this error.
    """

    title = "flipscope cannot go on"
    exit_code = 2

    def __init__(self, detail: str, *, hint: str = "", title: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
        if title is not None:
            self.title = title


class InputError(FlipscopeError):
    """A command was called with something it cannot use."""

    title = "Cannot use this input"


class PromptSetError(InputError):
    """A prompt set has a line that cannot be used; the detail names file, line and field."""

    title = "Prompt set has an error"


class CaptureFormatError(FlipscopeError):
    """A file is no capture, or none that this version reads."""

    title = "Cannot read capture"


class CaptureConflictError(FlipscopeError):
    """A capture on disk was made under other conditions than the run that would continue it."""

    title = "Cannot resume this capture"


class NotComparableError(FlipscopeError):
    """Two captures do not speak about the same thing; the detail holds both values."""

    title = "These captures cannot be compared"


class EngineMissingError(FlipscopeError):
    """The embedded engine or its model is not there."""

    title = "The embedded engine is not available"


class TokenizerError(FlipscopeError):
    """A tokenizer cannot be loaded or does not fit the server."""

    title = "Tokenizer trouble"


class ServerError(FlipscopeError):
    """A server failed, refused or answered nonsense."""

    title = "Server trouble"
    exit_code = 3


class ServerUnreachableError(ServerError):
    """Nothing answers at this address, or the connection broke and stayed broken."""

    title = "Cannot reach the server"


class ServerRefusedError(ServerError):
    """The server answered with an error status; asking again will not help.

    Attributes:
        status: The HTTP status, 0 when the error came inside a stream.
    """

    title = "The server refused the request"

    def __init__(self, detail: str, *, status: int = 0, hint: str = "", title: str | None = None) -> None:
        super().__init__(detail, hint=hint, title=title)
        self.status = status


class ServerDiedError(ServerError):
    """The engine behind the server died; every later request will fail until it is restarted."""

    title = "The server's engine died"


class ServerAnswerError(ServerError):
    """The server answered 200 with a body that does not hold what was asked for."""

    title = "The server's answer cannot be used"


class DeadlineError(ServerError):
    """A request or a run took longer than it was allowed."""

    title = "Out of time"
