"""Well-known models by name: facts from their published config.json files."""

from __future__ import annotations

from types import MappingProxyType

from offload.errors import ModelError, did_you_mean
from offload.models.architecture import Model
from offload.models.weights import weight_format

_MODELS = (
    Model("llama-2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, dtype="float16", max_positions=4096),
    Model("llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, dtype="bfloat16", max_positions=131072),
    Model("llama-3.1-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256, dtype="bfloat16", max_positions=131072),
    Model("mistral-nemo-12b", "mistral", 40, 5120, 32, 8, 128, 14336, 131072, dtype="bfloat16", max_positions=131072),
    Model("qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064,
          qkv_bias=True, dtype="bfloat16", max_positions=32768),
    Model("qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936,
          qk_norm=True, dtype="bfloat16", max_positions=40960),
)
catalogue = MappingProxyType({model.name: model for model in _MODELS})


def parse_model_name(text: str) -> tuple[str, str | None]:
    """("llama-3.1-70b", "q4_k_m") of "llama-3.1-70b:q4_k_m"; the format is None where none is given.

    Case does not matter. Raises ModelError for an unknown model or format, with the nearest known one.
    """
    name, colon, format_ = (part.strip() for part in text.partition(":"))
    known = {key.lower(): key for key in catalogue}
    if name.lower() not in known:
        hint = did_you_mean(name, catalogue, "Known models")
        raise ModelError(f'no model "{name}". {hint} Another model is given by the path of its config.json.')
    if not colon:
        return known[name.lower()], None
    try:
        return known[name.lower()], weight_format(format_)[0]
    except ModelError as error:
        raise ModelError(f'{error} (In "{text[:120]}".)') from None
