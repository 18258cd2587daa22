"""The model that a log speaks of: by its name, else by its architecture, parameters and layers; and its weight format.

Names are compared by their words ("Meta-Llama-3.1-8B-Instruct" holds those of llama-3.1-8b); what the log says of
parameters and layers decides whether that is the model. "llama 7B Q4_0" names none: 6.74 B parameters do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, cast

from offload.errors import ModelError, OffloadError, one_line
from offload.models import Model, catalogue, weigh
from offload.models.budget import check_kv_format
from offload.models.formats import KV_FORMATS, kv_name
from offload.models.weights import weight_format
from offload.readers import load_model
from offload.readers.engines.run import Run, Said, Value
from offload.units import format_bytes_both, many
from offload.why.notes import Notes

SAME = 0.02  # a name whose model has other parameters by more than this share is another model's
LAST_DIGIT = 0.0051  # of "6.74 B" and "270.89 M": half of the last digit printed
SIZES = 0.01  # bytes that differ by more are told
FAMILIES = {  # what logs call an architecture, families that it may be
    "llama": ("llama", "mistral", "mixtral"), "deepseek2": ("deepseek_v2", "deepseek_v3", "kimi_k2", "deepseek_v32"),
    "deepseekv3": ("deepseek_v3", "kimi_k2"), "phi3": ("phi3",),
}  # fmt: skip
GGUF_SIZES = {"small": "s", "medium": "m", "large": "l", "xs": "xs", "xxs": "xxs"}
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "f16": "fp16", "float32": "fp32", "f32": "fp32"}
SAY_MODEL = ("Say --model NAME (offload model lists them), or the path of its .gguf or config.json, "
             "with :FORMAT behind it where the log does not tell the weights' format.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """A model, the keys of a plan's `model` that say it, and its weights' format."""

    model: Model
    keys: dict[str, Any]
    weights: str


def model_of(
    run: Run, said: str | None, notes: Notes, weights: str | None = None, kv: bool = False
) -> Known:
    """The model of a run. said : what --model says, NAME or PATH, maybe with :FORMAT; weights : a format that is set
    elsewhere, kv : whether that of the KV cache is.

    Raises ModelError where the log does not tell, with what to say.
    """
    if said is not None:
        model, keys, own = _said(said)
        _compare(model, run, notes)
    else:
        model, keys, own = _found(run, notes)
    format_ = _format(run, model, weights or own, notes)
    if run.size is not None:
        _compare_size(model, format_, run.size, notes)
    keys = keys | {"weights": format_}
    if run.kv_format is not None and not kv:
        keys["kv"] = _kv(run.kv_format, model, notes)
    return Known(model, keys, format_)


def _known(said: Said[Value] | None) -> Said[Value]:
    """What a log says, where that is known by what was found with it."""
    return cast("Said[Value]", said)


def _said(text: str) -> tuple[Model, dict[str, Any], str | None]:
    """The model of NAME or PATH, maybe with :FORMAT; of a file with tensors the sizes are the file's own."""
    if not text.strip():
        raise ModelError(f"--model is empty. {SAY_MODEL}")
    head, colon, tail = text.rpartition(":")
    name, own = (text, None) if not colon or os.path.exists(text) else (head, tail)
    try:
        model = load_model(name, weights_known=own is not None)
    except OffloadError as error:
        raise ModelError(f"--model: {error}") from None
    if model.name in catalogue and not os.path.exists(name):
        return model, {"name": model.name}, own
    key = "gguf" if name.lower().endswith(".gguf") else "config"
    return model, {key: name}, own or ("stored" if model.stored is not None else None)


def _found(run: Run, notes: Notes) -> tuple[Model, dict[str, Any], None]:
    """The model of the catalogue that the log's name or figures are those of."""
    named = _by_name(run)  # some only where the log has a name
    shaped = _by_shape(run)  # some only where it tells parameters
    for name in named:
        if name in shaped or not _differs(catalogue[name], run, SAME):
            notes.took("model", name, _known(run.model).line)
            _compare(catalogue[name], run, notes)
            if run.parameters is None and run.layers is None:
                notes.assume(f"model: {name} by its name alone: the log tells neither parameters nor layers")
            return catalogue[name], {"name": name}, None
    if len(shaped) == 1 or shaped and all(catalogue.config(one) == catalogue.config(shaped[0]) for one in shaped):
        told = _known(run.parameters)
        notes.took("model", shaped[0], told.line)
        notes.assume(f"model: {shaped[0]}, the one known of its architecture with {_billions(told.value)} "
                     f"parameters (line {told.line}); --model says another")  # fmt: skip
        return catalogue[shaped[0]], {"name": shaped[0]}, None
    called = f'"{one_line(run.model.value)}"' if run.model is not None else "it has no name there"
    if named:
        other = "; ".join(f"{name}: {_differs(catalogue[name], run, SAME)}" for name in named)
        raise ModelError(f"the log's model ({called}, line {_known(run.model).line}) is none that is known ({other}). "
                         f"{SAY_MODEL}")
    if len(shaped) > 1:
        raise ModelError(f"the log's model ({called}) may be {' or '.join(shaped)}. {SAY_MODEL}")
    raise ModelError(f"the log's model is none that is known ({called}{_figures(run)}). {SAY_MODEL}")


def _figures(run: Run) -> str:
    found = []
    if run.architecture is not None:
        found.append(one_line(run.architecture.value))
    if run.parameters is not None:
        found.append(f"{_billions(run.parameters.value)} parameters")
    if run.layers is not None:
        found.append(many(run.layers.value, "layer"))
    return f"; {', '.join(found)}" if found else ""


def _words(text: str) -> set[str]:
    plain = re.split(r"[/\\]", text.strip())[-1].lower()
    return set(re.findall(r"[a-z0-9.]*[a-z0-9]", plain.removesuffix(".gguf")))


def _by_name(run: Run) -> list[str]:
    """Names of the catalogue whose words are all in the log's name; of these only those with the most words."""
    if run.model is None:
        return []
    words = _words(run.model.value)
    found = {name: len(_words(name)) for name in catalogue if _words(name) <= words}
    if "distill" in words:  # "DeepSeek-R1-Distill-Llama-8B" is no DeepSeek R1
        found = {name: count for name, count in found.items() if not name.startswith("deepseek")}
    most = max(found.values(), default=0)
    return [name for name, count in found.items() if count == most]


def _by_shape(run: Run) -> list[str]:
    """Names of the catalogue with the log's architecture and parameters, to the last digit that a log prints."""
    if run.parameters is None or (run.architecture is None and run.model is None):
        return []
    told = run.parameters.value
    near = LAST_DIGIT * (1e12 if told >= 1e12 else 1e9 if told >= 1e9 else 1e6 if told >= 1e6 else 1)
    found = {}
    for name in catalogue:
        model = catalogue[name]
        apart = min(abs(told - count) for count in (model.parameters, model.parameters_stored))
        layers = run.layers is None or run.layers.value in (model.layers, model.layers + len(model.further))
        if apart <= near and layers and _is_family(model, run):
            found[name] = apart
    return sorted(found, key=lambda name: found[name])


def _is_family(model: Model, run: Run) -> bool:
    """Whether a model's family is the architecture that a log tells, as one of its words."""
    told = run.architecture.value if run.architecture is not None else _known(run.model).value
    words = {re.sub(r"forcausallm$|forconditionalgeneration$|[_-]", "", word) for word in
             re.findall(r"[a-z0-9_-]+", told.lower())}  # fmt: skip
    return any(_plain(model.family) in map(_plain, FAMILIES.get(word, (word,))) for word in words)


def _plain(text: str) -> str:
    return text.replace("_", "").replace("-", "")


def _differs(model: Model, run: Run, near: float) -> str:
    """What the log says otherwise of a model, its parameters before its layers; "" where nothing does."""
    return next(iter(_differences(model, run, near)), "")


def _differences(model: Model, run: Run, near: float) -> list[str]:
    found = []
    if run.parameters is not None:
        told = run.parameters.value
        if min(abs(told / count - 1) for count in (model.parameters, model.parameters_stored)) > near:
            found.append(f"{_billions(model.parameters)} parameters, and the log says {_billions(told)}")
    if run.layers is not None and not model.layers <= run.layers.value <= model.layers + len(model.further):
        found.append(f"{many(model.layers, 'layer')}, and the log says {run.layers.value}")
    return found


def _compare(model: Model, run: Run, notes: Notes) -> None:
    """Note what the log says otherwise of the model that was taken."""
    for wrong in _differences(model, run, 0.002):
        notes.contradict(f"model: {model.name} has {wrong}")


def _billions(count: float) -> str:
    return f"{count / 1e9:.4g} B" if count >= 1e9 else f"{count / 1e6:.4g} M"


def _format(run: Run, model: Model, said: str | None, notes: Notes) -> str:
    """The weights' format as a plan says it. Raises ModelError where nothing tells it."""
    if said is not None:
        return _weighed(model, said)
    if run.weights_format is None:
        if model.quantised is not None or (model.stored is not None):
            notes.assume("model.weights: as its checkpoint stores them")
            return "stored" if model.quantised is None or model.stored is not None else model.quantised.format
        raise ModelError(f"the log does not tell the format of {model.name}'s weights. "
                         f"Say --model {model.name}:FORMAT, as :q4_k_m, :bf16, :fp8.")
    told = run.weights_format
    name = plain_format(told.value)
    try:
        found = _weighed(model, name)
    except ModelError:
        raise ModelError(f'the log\'s weight format "{one_line(told.value)}" (line {told.line}) is none that is known. '
                         f"Say --model {model.name}:FORMAT (docs/weight-formats.md).") from None
    notes.took("model.weights", found, told.line)
    return found


def _weighed(model: Model, format_: str) -> str:
    name = "stored" if format_ == "stored" else weight_format(format_)[0]
    weigh(model, name)  # refuses what the model cannot have
    return name


def plain_format(told: str) -> str:
    """A log's name of a weight format as ours: "Q4_K - Medium" -> "q4_k_m", "mostly F16" -> "fp16"."""
    text = re.sub(r"\((?:guessed)\)|^(?:mostly|all)\s+|torch\.", "", told.strip().lower()).strip()
    text = re.sub(r"\s*-?\s*[\d.]+\s*bpw.*$", "", text)
    size = re.fullmatch(r"(q\d_k)\s*-\s*(small|medium|large)", text)
    if size:
        kind, letter = size[1], GGUF_SIZES[size[2]]
        return "q2_k" if (kind, letter) == ("q2_k", "m") else f"{kind}_{letter}"
    sized = re.fullmatch(r"(iq\d)_(\w+)\s*mix", text)
    if sized:
        text = f"{sized[1]}_m" if sized[2] == "s" else text
    return DTYPES.get(text, re.sub(r"\s+", "_", text))


def _compare_size(model: Model, format_: str, size: Said[int], notes: Notes) -> None:
    ours, told = weigh(model, format_).total, size.value
    if abs(ours / told - 1) > SIZES:
        notes.contradict(
            f"size: the log says {format_bytes_both(told)} (line {size.line}), and {model.name} in {format_} has "
            f"{format_bytes_both(ours)} here: times count these. The file's own tensors: --model PATH.gguf"
        )


def _kv(told: Said[str], model: Model, notes: Notes) -> str:
    parts = re.fullmatch(r"K (\S+), V (\S+)", told.value.strip())
    try:
        names = [kv_name(one.removeprefix("torch.")) for one in (parts.groups() if parts else (told.value,))]
        name = min(names, key=lambda one: KV_FORMATS[one].row_bytes(256) if one in KV_FORMATS else 0)
        if len(set(names)) > 1:
            notes.assume(f"model.kv: {name} for keys and values: the log has {one_line(told.value)} (line {told.line}),"
                         " and a plan one format; the one of fewer bytes is taken")
        check_kv_format(model, name)
    except OffloadError as error:
        raise ModelError(f'the log\'s KV format "{one_line(told.value)}" (line {told.line}): {error} '
                         "Say --set model.kv=FORMAT.") from None
    notes.took("model.kv", name, told.line)
    return name
