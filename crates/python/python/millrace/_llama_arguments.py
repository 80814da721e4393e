"""Arguments of llama-cpp-python: their meaning here, and refusals."""

from typing import Any, List, Optional, Sequence, Tuple, Union

from ._errors import InvalidValueError

# llama.cpp's numbers for kinds of pooling: unspecified, mean, first token, last token.
POOLING = {-1: None, 1: "mean", 2: "first", 3: "last"}

# ggml's numbers for the formats of cached keys and values that Millrace has.
KV_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 6: "q5_0", 8: "q8_0", 30: "bf16"}

# llama.cpp's value for a new seed in each call.
DEFAULT_SEED = 0xFFFFFFFF


def refuse(call: str, advice: str = "leave it out, or use `millrace serve`", **given: Tuple[Any, Any]) -> None:
    """Refuses arguments that Millrace does not have. `given` maps each name to the given value and the neutral one, which is accepted."""
    for name, (value, neutral) in given.items():
        if value is None or value is neutral or value == neutral:
            continue
        raise InvalidValueError(f"`{call}` has no `{name}={value!r}` here", advice)


def check_rope(own: Optional[float], base: Optional[float], scale: Optional[float]) -> None:
    """Refuses RoPE frequencies other than the model's own. 0 means the model's own. LangChain sends 10000 and 1 by default, which are
    the values of many models. `own` is the model's base; None if its frequencies are scaled or differ by layer."""
    for name, value, neutral in (("rope_freq_base", base, own), ("rope_freq_scale", scale, own and 1.0)):
        if value and (neutral is None or abs(value - neutral) > 1e-6 * neutral):
            found = "the model's frequencies are scaled, or differ by layer" if own is None else f"the model has {neutral:g}"
            raise InvalidValueError(
                f"`Llama` has no `{name}={value!r}` here: {found}",
                "leave it out, or give 0, which takes what the model's file says",
            )


def mirostat(call: str, mode: int, tau: float, eta: float) -> Optional[Tuple[float, float]]:
    if mode == 0:
        return None
    if mode != 2:
        raise InvalidValueError(f"`{call}` has no `mirostat_mode={mode}` here", "there are 0 (off) and 2")
    return tau, eta


def stops(stop: Optional[Union[str, Sequence[str]]]) -> List[str]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else list(stop)


def text_of(text: Union[str, bytes]) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def seed_of(seed: Optional[int]) -> Optional[int]:
    return None if seed in (None, -1, DEFAULT_SEED) else seed
