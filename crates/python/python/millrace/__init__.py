"""Large language models on the CPU and on NPUs.

    import millrace

    model = millrace.Model("demo")
    print(model.generate("Once upon a time"))
    for piece in model.generate("Once upon a time", stream=True):
        print(piece, end="", flush=True)
    print(model.chat([{"role": "user", "content": "What is 7 plus 5?"}]))

Any thread may use a model. The interpreter's lock is released while Millrace works, and Ctrl-C stops a call.
"""

from ._errors import (
    CancelledError,
    ClosedError,
    ContextOverflowError,
    DeviceError,
    Error,
    InvalidValueError,
    ModelFileError,
    ModelNotFoundError,
)
from ._native import (
    CancelToken,
    Completion,
    Logits,
    Model,
    Stream,
    __version__,
    devices,
    levels,
)

__all__ = [
    "CancelToken",
    "CancelledError",
    "ClosedError",
    "Completion",
    "ContextOverflowError",
    "DeviceError",
    "Error",
    "InvalidValueError",
    "Logits",
    "Model",
    "ModelFileError",
    "ModelNotFoundError",
    "Stream",
    "__version__",
    "devices",
    "levels",
]
