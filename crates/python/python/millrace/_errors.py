"""Exceptions. Each is an `Error`, and its text names the expected and the found value."""

from typing import Optional


class Error(Exception):
    """Base class of all exceptions. `advice` suggests a remedy where the message alone does not."""

    def __init__(self, message: str, advice: Optional[str] = None) -> None:
        super().__init__(message, advice)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return self.message if self.advice is None else f"{self.message}; {self.advice}"


class ModelNotFoundError(Error, LookupError):
    """No model has the given name."""


class ModelFileError(Error, ValueError):
    """A model's file is damaged, or this version does not run the model."""


class DeviceError(Error, RuntimeError):
    """A device does not exist, cannot run the model, or failed."""


class ContextOverflowError(Error, ValueError):
    """A prompt does not fit the context."""


class InvalidValueError(Error, ValueError):
    """A value is outside its range."""


class CancelledError(Error):
    """Work was stopped before it had a result."""


class ClosedError(Error, ValueError):
    """A call on a closed model."""
