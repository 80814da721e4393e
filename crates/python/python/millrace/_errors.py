"""What can go wrong. Every exception is an `Error`, and says what was expected and found."""

from typing import Optional


class Error(Exception):
    """Something that Millrace refused or could not do. `advice` says what to do, where the text alone does not."""

    def __init__(self, message: str, advice: Optional[str] = None) -> None:
        super().__init__(message, advice)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return self.message if self.advice is None else f"{self.message}; {self.advice}"


class ModelNotFoundError(Error, LookupError):
    """Nothing has the name that was given for a model."""


class ModelFileError(Error, ValueError):
    """A model's file that is damaged, or a model that this version does not run."""


class DeviceError(Error, RuntimeError):
    """A device that does not exist, cannot run the model, or failed."""


class ContextOverflowError(Error, ValueError):
    """A prompt that does not fit the context."""


class InvalidValueError(Error, ValueError):
    """A value outside its range."""


class CancelledError(Error):
    """Work that was stopped before it had a result."""


class ClosedError(Error, ValueError):
    """A call on a model that was closed."""
