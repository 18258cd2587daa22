"""What a checkpoint says of how its weights are stored: `quantization_config`, MLX's `quantization`, ModelOpt's file.

Each method is read by its own keys into a weight format, the modules that stay 16-bit, and the KV cache's format where
one is stated. A method that is not known is refused by name, and so is one that gives modules different formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from offload.errors import ModelError, did_you_mean
from offload.models.modules import MOST, check_patterns
from offload.models.weights import weight_format

SIZES = "give the weights' files, whose own sizes count, or state the format and bytes"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How a checkpoint stores its weights.

    method : as the file names it ("gptq"). format : a weight format, for `weigh` and `bits_per_weight`. skip : modules
    that stay 16-bit besides embedding, head, norms, biases and routers, for `weigh`. kv : format of the KV cache, or
    None where nothing is said. notes : what the format leaves open.
    """

    method: str
    format: str
    skip: tuple[str, ...] = ()
    kv: str | None = None
    notes: tuple[str, ...] = ()


def parse_quantisation(values: Mapping[str, Any]) -> Quantisation:
    """How weights are stored, from the map that says so.

    values : the content of `quantization_config` (or `compression_config`) of a config.json, of MLX's `quantization`,
    or of a side file (hf_quant_config.json, quantize_config.json of GPTQ, quant_config.json of AWQ). Raises ModelError
    for a method that is not known, a key that is missing or wrong, and modules of several formats.
    """
    if not isinstance(values, Mapping):
        raise ModelError(f"quantization_config is {_kind(values)}; it must be a map with the key quant_method.")
    inner = values.get("quantization")
    if isinstance(inner, Mapping) and ("quant_algo" in inner or "quant_algo" not in values):
        values = {"quant_method": "modelopt", **inner} if "quant_algo" in inner else inner
    method = _method(values)
    if method not in METHODS:
        hint = did_you_mean(method[:60], METHODS, "Known methods")
        raise ModelError(f'quantization method "{_shown(method)}" is not known. {hint} For others {SIZES}.')
    found = METHODS[method](values)
    check_patterns(found.skip)  # what cannot be read is refused here, where it is written
    kv = found.kv or _kv_scheme(values)
    return Quantisation(method, weight_format(found.format)[0], found.skip, kv, found.notes)


def _method(values: Mapping[str, Any]) -> str:
    """The method by its name, or by the keys that only it has."""
    given = values.get("quant_method")
    if isinstance(given, str) and given.strip():
        name = given.strip().lower().replace("_", "-")
        return {"modelopt-fp4": "modelopt", "auto-round": "auto-round", "intel/auto-round": "auto-round",
                "gptq-marlin": "gptq", "awq-marlin": "awq"}.get(name, name)  # fmt: skip
    if given is not None and not isinstance(given, str):
        raise ModelError(f"quant_method is {_kind(given)}; it must be the name of a method.")
    marks = (("modelopt", ("quant_algo",)), ("compressed-tensors", ("config_groups",)), ("awq", ("w_bit",)),
             ("bitsandbytes", ("load_in_4bit", "_load_in_4bit", "load_in_8bit", "_load_in_8bit")),
             ("gptq", ("desc_act",)), ("fp8", ("weight_block_size",)), ("mlx", ("group_size", "bits")))  # fmt: skip
    for method, keys in marks:
        if any(key in values for key in keys) if method != "mlx" else all(key in values for key in keys):
            return method
    raise ModelError('the key "quant_method" is missing, and no other key tells the method. Add it, as '
                     '"quant_method": "gptq".')  # fmt: skip


# --- each method's own keys ---


def _gptq(values: Mapping[str, Any]) -> Quantisation:
    """Files of GPTQ hold zero points even where they are all alike, and a group index for each input."""
    if values.get("dynamic"):
        raise ModelError(f'"dynamic" gives modules bits of their own, which are not counted; {SIZES}.')
    bits, group = _whole(values, ("bits", "w_bit"), (2, 3, 4, 8)), _group(values)
    notes = ["zero points and group indices are counted: GPTQ's files hold them, symmetric or not, in order or not"]
    if values.get("lm_head") is True:
        notes.append('"lm_head": true: the head is quantised too, and is counted in 16 bits')
    return Quantisation("", f"int{bits}-{_grouped(group)}-act", _modules(values), notes=tuple(notes))


def _awq(values: Mapping[str, Any]) -> Quantisation:
    bits, group = _whole(values, ("bits", "w_bit"), (2, 3, 4, 8)), _group(values)
    zeros = _flag(values, "zero_point", True)
    return Quantisation("", f"int{bits}-{_grouped(group)}{'' if zeros else '-sym'}", _modules(values))


def _auto_round(values: Mapping[str, Any]) -> Quantisation:
    if values.get("extra_config"):
        raise ModelError(f'"extra_config" gives modules bits of their own, which are not counted; {SIZES}.')
    bits, group = _whole(values, ("bits",), (2, 3, 4, 8)), _group(values)
    return Quantisation("", f"int{bits}-{_grouped(group)}", _modules(values))


def _bitsandbytes(values: Mapping[str, Any]) -> Quantisation:
    four = any(_flag(values, key, False) for key in ("load_in_4bit", "_load_in_4bit"))
    eight = any(_flag(values, key, False) for key in ("load_in_8bit", "_load_in_8bit"))
    if four == eight:
        raise ModelError("bitsandbytes: one of load_in_4bit and load_in_8bit must be true, "
                         f"{'both are' if four else 'none is'}.")
    if eight:
        return Quantisation("", "bnb-int8", _modules(values))
    kind = values.get("bnb_4bit_quant_type", "fp4")  # the default of transformers
    if kind not in ("nf4", "fp4"):
        raise ModelError(f"bnb_4bit_quant_type is {_given(kind)}; it must be nf4 or fp4.")
    double = _flag(values, "bnb_4bit_use_double_quant", False)
    notes = () if kind == "nf4" else ("4-bit floats (fp4) take the bytes of nf4",)
    return Quantisation("", "nf4-double" if double else "nf4", _modules(values), notes=notes)


def _fp8(values: Mapping[str, Any]) -> Quantisation:
    block = values.get("weight_block_size")
    if block is None:
        return Quantisation("", "fp8", _modules(values))
    if not (isinstance(block, list | tuple) and len(block) == 2 and all(_is_whole(one) for one in block)):
        raise ModelError(f"weight_block_size is {_given(block)}; it must be two whole numbers, as [128, 128], or null.")
    powers = values.get("scale_fmt") == "ue8m0"
    notes = ("scales are powers of two and counted in 8 bits; files that keep them in 32 have a little more",)
    name = f"fp8-{block[0]}x{block[1]}{'-ue8m0' if powers else ''}"
    return Quantisation("", name, _modules(values), notes=notes if powers else ())


def _mxfp4(values: Mapping[str, Any]) -> Quantisation:
    return Quantisation("", "mxfp4", _modules(values))


def _compressed_tensors(values: Mapping[str, Any]) -> Quantisation:
    groups = values.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise ModelError("config_groups is missing: compressed-tensors says there how weights are stored.")
    names = set()
    for key, group in list(groups.items())[:MOST]:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            raise ModelError(f"config_groups: {_shown(key)} has no weights: nothing says how they are stored.")
        names.add(_compressed_format(weights))
    if len(names) > 1:
        several = ", ".join(sorted(names))
        raise ModelError(f"config_groups gives modules several formats ({several}), which are not told apart; {SIZES}.")
    notes = ("weights that sparsity leaves out are counted",) if values.get("sparsity_config") else ()
    return Quantisation("", names.pop(), _modules(values), notes=notes)


def _compressed_format(weights: Mapping[str, Any]) -> str:
    bits, kind = _whole(weights, ("num_bits",), range(2, 9)), weights.get("type", "int")
    strategy, group = weights.get("strategy"), weights.get("group_size")
    if strategy is None:  # the default of compressed-tensors
        strategy = "tensor" if group is None else "channel" if group == -1 else "group"
    if kind == "float" and bits == 8:
        if strategy == "block":
            return str(_fp8({"weight_block_size": weights.get("block_structure") or [128, 128]}).format)
        if strategy in ("tensor", "channel"):
            return "fp8" if strategy == "tensor" else "fp8-channel"
        if strategy == "group" and group == 32:
            return "mxfp8"
    if kind == "float" and bits == 4 and group in (16, 32):
        return "nvfp4" if group == 16 else "mxfp4-all"
    if kind == "int" and strategy in ("channel", "tensor", "group"):
        if strategy != "group" and bits == 8:
            return "int8"
        size = _group(weights) if strategy == "group" else -1
        symmetric = _flag(weights, "symmetric", True)
        order = weights.get("actorder") in (True, "group", "dynamic")
        return f"int{bits}-{_grouped(size)}{'-sym' if symmetric else ''}{'-act' if order else ''}"
    raise ModelError(f"compressed-tensors: weights of {bits} bits, type {_given(kind)}, strategy {_given(strategy)}, "
                     f"group_size {_given(group)} are not counted; {SIZES}.")  # fmt: skip


MODELOPT = {
    "fp8": "fp8", "nvfp4": "nvfp4", "nvfp4-awq": "nvfp4", "w4a16-nvfp4": "nvfp4", "mxfp8": "mxfp8",
    "mxfp4": "mxfp4-all", "w4a8-mxfp4-fp8": "mxfp4-all", "fp8-pb-wo": "fp8-128x128", "fp8-pb-real": "fp8-128x128",
    "fp8-per-channel-per-token": "fp8-channel", "w8a16": "int8", "w8a8-sq-per-channel": "int8", "int8-sq": "int8",
}  # fmt: skip
MODELOPT_INT4 = ("w4a16-awq", "w4a8-awq", "int4-awq", "w4a16")


def _modelopt(values: Mapping[str, Any]) -> Quantisation:
    given = values.get("quant_algo")
    kv = values.get("kv_cache_quant_algo")
    if kv is not None and not isinstance(kv, str):
        raise ModelError(f"kv_cache_quant_algo is {_given(kv)}; it must be the name of a format, or null.")
    kv = kv.strip().lower()[:60] if kv else _kv_scheme(values)
    kv = "int8-tensor" if kv == "int8" else kv  # ModelOpt keeps one scale for a layer's keys and one for its values
    skip = _modules(values)
    if given is None and "quant_algo" in values:
        return Quantisation("", "bf16", (), kv, ("only the KV cache is quantised",) if kv else ())
    if not isinstance(given, str):
        raise ModelError('"quant_algo" is missing: ModelOpt names there how weights are stored, as NVFP4.')
    name = given.strip().lower().replace("_", "-")
    if name in MODELOPT_INT4:
        group = _group(values) if values.get("group_size") is not None else 128
        return Quantisation("", f"int4-{_grouped(group)}-sym", skip, kv)
    if name not in MODELOPT:
        why = "gives each layer an algorithm of its own" if name == "mixed-precision" else "is not known"
        hint = did_you_mean(name, [*MODELOPT, *MODELOPT_INT4], "Known ones")
        raise ModelError(f"quant_algo {_given(given)} {why}. {hint} For others {SIZES}.")
    return Quantisation("", MODELOPT[name], skip, kv)


# Strategies whose scales are stored once, whatever the number of positions; "token" has one for each.
ONCE = ("tensor", "attn_head", "channel")
KV_SCHEMES = {("float", True): "fp8", ("float", False): "fp8-head",
              ("int", True): "int8-tensor", ("int", False): "int8"}  # fmt: skip


def _kv_scheme(values: Mapping[str, Any]) -> str | None:
    """The KV cache's format by `kv_cache_scheme`: a map as of weights (compressed-tensors, ModelOpt), or a text.

    The fp8 method says "static" or "dynamic": fp8 with one scale for a tensor. What is not known is told in words, and
    refused where the cache is counted in it. Raises ModelError for what is neither map nor text.
    """
    scheme = values.get("kv_cache_scheme")
    if scheme is None or scheme == "":
        return None
    if isinstance(scheme, str):
        name = scheme.strip().lower()
        return "fp8" if name in ("static", "dynamic") and _method(values) == "fp8" else name[:60]
    if not isinstance(scheme, Mapping):
        raise ModelError(f"kv_cache_scheme is {_given(scheme)}; it must be a map as of weights, a text, or null.")
    bits, kind = _whole(scheme, ("num_bits",), (4, 8)), scheme.get("type", "int")
    strategy, group = scheme.get("strategy"), scheme.get("group_size")
    if strategy is None:
        strategy = "tensor" if group is None else "group"
    if bits == 8 and kind in ("float", "int") and strategy in (*ONCE, "token"):
        return KV_SCHEMES[kind, strategy in ONCE]
    if (bits, kind, group) == (4, "float", 16) and strategy in ("tensor_group", "group"):
        return "nvfp4"
    return f"{bits} bits, {_shown(kind)}, {_shown(strategy)}{'' if group is None else f' of {_shown(group)}'}"[:60]


MLX_MODES = {"mxfp4": "mxfp4-all", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}


def _mlx(values: Mapping[str, Any]) -> Quantisation:
    """MLX gives a module bits of its own under its name; false leaves it in 16 bits."""
    mode = values.get("mode", "affine")
    if not isinstance(mode, str) or mode not in ("affine", *MLX_MODES):
        raise ModelError(f"mode is {_given(mode)}; it must be affine, {', '.join(MLX_MODES)}.")
    bits, group = _whole(values, ("bits",), (2, 3, 4, 5, 6, 8)), _group(values)
    own = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    other = [key for key, value in own.items()
             if (value.get("bits", bits), value.get("group_size", group)) != (bits, group)
             and not str(key).endswith(("gate", "router"))]  # fmt: skip
    if other:
        raise ModelError(f"{len(other)} modules have bits of their own ({_shown(other[0])}), which are not told apart; "
                         f"{SIZES}.")  # fmt: skip
    notes: tuple[str, ...] = ()
    if own:
        notes = (f"{len(own)} routers or gates with bits of their own are counted as the rest",)
    skip = tuple(str(key) for key, value in values.items() if value is False)
    if mode != "affine":
        notes += ("embedding and head are counted in 16 bits; MLX quantises them too",)
        return Quantisation("", MLX_MODES[mode], skip, notes=notes)
    return Quantisation("", f"mlx-{bits}bit-g{group}", skip, notes=notes)


METHODS: dict[str, Callable[[Mapping[str, Any]], Quantisation]] = {
    "gptq": _gptq, "awq": _awq, "auto-round": _auto_round, "bitsandbytes": _bitsandbytes, "fp8": _fp8, "mxfp4": _mxfp4,
    "compressed-tensors": _compressed_tensors, "modelopt": _modelopt, "mlx": _mlx,
}  # fmt: skip

# --- values ---

MODULE_KEYS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignored_layers", "ignored_modules", "ignore",
               "exclude_modules")  # fmt: skip


def _modules(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that a config leaves in 16 bits, under whichever key its method has for them."""
    found: dict[str, None] = {}
    for key in MODULE_KEYS:
        given = values.get(key)
        if given is None:
            continue
        if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
            raise ModelError(f"{key} is {_given(given)}; it must be a list of names of modules.")
        if len(given) > MOST:
            raise ModelError(f"{key} names {len(given):,} modules; more than {MOST:,} are not read.")
        found |= dict.fromkeys(one for one in given if one.strip())
    return tuple(found)


def _whole(values: Mapping[str, Any], keys: tuple[str, ...], allowed: Any) -> int:
    key = next((key for key in keys if values.get(key) is not None), None)
    if key is None:
        raise ModelError(f'the key "{keys[0]}" is missing. Add it: one of {", ".join(map(str, allowed))}.')
    if not _is_whole(values[key]) or values[key] not in allowed:
        raise ModelError(f"{key} is {_given(values[key])}; it must be one of {', '.join(map(str, allowed))}.")
    value: int = values[key]
    return value


def _group(values: Mapping[str, Any]) -> int:
    """Weights that share a scale along a row; -1 is the whole row."""
    key = next((key for key in ("group_size", "q_group_size") if values.get(key) is not None), None)
    if key is None:
        raise ModelError('the key "group_size" is missing. Add it, as 128 (-1 is one scale for each row).')
    if not _is_whole(values[key]) or not (values[key] == -1 or 1 <= values[key] <= 10**6):
        raise ModelError(f"{key} is {_given(values[key])}; it must be -1 (the whole row) or a whole number from 1.")
    value: int = values[key]
    return value


def _grouped(group: int) -> str:
    return "row" if group == -1 else f"g{group}"


def _flag(values: Mapping[str, Any], key: str, otherwise: bool) -> bool:
    value = values.get(key)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise ModelError(f"{key} is {_given(value)}; it must be true or false.")
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    kinds = {bool: "true or false", Mapping: "a map", list: "a list", str: "a text", int: "a number", float: "a number"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "nothing (null)")


def _given(value: object) -> str:
    if isinstance(value, Mapping | list):
        return _kind(value)
    return f'"{_shown(value)}"' if isinstance(value, str) else "null" if value is None else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**18:
        return "far too large"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(value)[:60])
