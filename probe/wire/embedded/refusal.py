"""How vLLM says no: status and error body."""

from __future__ import annotations

from typing import Any


class RefusalError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        body: The JSON body, in the shape vLLM gives this kind of error.
    """

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None):
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class RouteError(RefusalError):
    """A wrong path or method: FastAPI's shape of an error, without the `error` key."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail, status=status)
        self.body = {"detail": detail}


def bad_value(message: str, name: str, value: object) -> RefusalError:
    """A parameter with a value out of range, with vLLM's ending."""
    return RefusalError(f"{message} (parameter={name}, value={value})", param=name)
