"""How a checkpoint stores its weights, from a config that says so or from the side file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload.errors import ModelError
from offload.models.architecture import Quantised

# The second is MLX's, the third an older name of the first.
STORED_KEYS = ("quantization_config", "quantization", "compression_config")
NESTED = ("text_config", "llm_config", "language_config")  # where multimodal models keep their decoder


def stored_as(values: Mapping[str, Any]) -> Any:
    """What a config says of how its weights are stored, as it stands; None where it says nothing. Nested decoders' too.

    Raises ModelError where two places say different things.
    """
    parts = [values, *(values.get(key) for key in NESTED)]
    found = [part[key] for part in parts if isinstance(part, Mapping) for key in STORED_KEYS
             if part.get(key) is not None and part[key] != {}]  # fmt: skip
    if any(one != found[0] for one in found):
        raise ModelError("it says in two places how its weights are stored, and they differ: drop the wrong one "
                         f"({', '.join(STORED_KEYS)}).")
    return found[0] if found else None


def stored_weights(content: Any, *, weights_known: bool) -> tuple[Quantised, tuple[str, ...]] | None:
    """The format that weights are stored in, and what it leaves open.

    content : that of quantization_config or of a side file. weights_known : the user states the format, so that
    what cannot be read here is no error. Raises ModelError.
    """
    from offload.models.quantisation import parse_quantisation  # only where a file says so

    try:
        found = parse_quantisation(content)
    except ModelError as error:
        if weights_known:
            return None
        raise ModelError(
            f"its weights are stored quantised: {error} Or say the format yourself: `weights: int8` in a plan file, "
            "--weights int8 without one (fp8, int4-g128, q4_k_m, ...); the config then gives the shape."
        ) from None
    return Quantised(found.format, found.skip, found.kv), found.notes
