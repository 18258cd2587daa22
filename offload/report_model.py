"""Models as text: one in full, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from offload.describe_model import AtContext, ModelSummary, StoredSummary
from offload.printing import write_heading, write_line, write_list, write_table
from offload.units import format_bytes, format_bytes_both, format_flop, many

DIGITS = 4
SIZES = 8  # of layers that are printed
AT = ("decode a token", "prefill of all", "read by a token", "kept")  # at a context


def write_models(models: Sequence[ModelSummary | StoredSummary], console: Console) -> None:
    """Print one model in full, several in a table; files that are no model here by what they store."""
    for one in models:
        if isinstance(one, StoredSummary):
            _write_stored(one, console)
    whole = [one for one in models if isinstance(one, ModelSummary)]
    if len(whole) <= 1:
        for own in whole:
            _write_one(own, console)
        return
    rows = [
        [own.name, _billions(own.parameters), _billions(own.parameters_active), own.format,
         format_bytes(own.weight_bytes, DIGITS), format_bytes(own.kv_format_bytes_per_token, DIGITS),
         format_bytes(own.kv_constant_bytes + own.state_bytes_per_sequence, DIGITS),
         format_bytes(own.read_bytes_per_token, DIGITS)]
        for own in whole
    ]  # fmt: skip
    headings = ["model", "parameters", "active", "format", "weights", "KV/token", "sequence", "read/token"]
    write_table(console, headings, rows, right={1, 2, 4, 5, 6, 7})
    formats = ", ".join(dict.fromkeys(own.kv_format for own in whole))
    write_line(console, f"KV/token: of layers whose cache grows, in {formats}; sequence: full windows and states; "
                        "read/token: weights, at batch 1.")
    _write_common(whole, console)
    if contrast := _cache_against_parameters(whole):
        write_line(console, contrast)
    for own in whole:
        write_list(own.name, own.notes, console)


def _write_common(models: Sequence[ModelSummary], console: Console) -> None:
    """The models at the longest context that all of them are shown at."""
    common = set.intersection(*({at.context for at in one.at} for one in models))
    if common:
        longest = max(common)
        write_heading(console, f"One sequence at a context of {longest:,}")
        rows = [[one.name, *_at(next(at for at in one.at if at.context == longest))] for one in models]
        write_table(console, ["model", *AT], rows, right={1, 2, 3, 4})


def _at(at: AtContext) -> list[str]:
    return [format_flop(at.decode_flops, DIGITS), format_flop(at.prefill_flops, DIGITS),
            format_bytes(at.decode_read_bytes, DIGITS), format_bytes(at.kept_bytes, DIGITS)]  # fmt: skip


def _cache_against_parameters(models: Sequence[ModelSummary]) -> str:
    """A sentence on the two models that show best that parameters do not say how large a cache is; "" where none do.

    By what a sequence keeps at the longest context that all are shown at.
    """
    common = set.intersection(*({at.context for at in one.at} for one in models))
    if not common:
        return ""
    context = max(common)
    kept = {id(one): next(at.kept_bytes for at in one.at if at.context == context) for one in models}
    pairs = [(one, other) for one in models for other in models
             if one.parameters > other.parameters and kept[id(one)] < kept[id(other)]]  # fmt: skip
    if not pairs:
        return ""
    large, small = min(pairs, key=lambda pair: kept[id(pair[0])] / kept[id(pair[1])])
    share = kept[id(large)] / kept[id(small)]
    return (f"The number of parameters does not say how large the cache is: {large.name} has "
            f"{large.parameters / small.parameters:.3g} times the parameters of {small.name}, and at a context of "
            f"{context:,} a sequence keeps {share:.3g} of its bytes.")


def _write_one(one: ModelSummary, console: Console) -> None:
    sizes = f"{many(one.layers, 'layer')}, hidden {one.hidden:,}, vocabulary {one.vocab:,}"
    write_line(console, f"{one.name} ({one.family}), {sizes}", style="bold")
    for kind, count in one.kinds:
        write_line(console, f"{count} x {kind}")
    write_line(console, "The head is the embedding." if one.tied else "Embedding and head are two tables.")
    if one.max_positions is not None:
        write_line(console, f"Longest context it states: {one.max_positions:,}.")
    write_heading(console, f"Weights in {one.format}")
    rows = [
        [name, f"{part.parameters:,}", f"{part.active:,}", format_bytes(part.bytes, DIGITS),
         format_bytes(part.read, DIGITS)]
        for name, part in one.classes.items()
    ]  # fmt: skip
    rows.append(["in all", f"{one.parameters:,}", f"{sum(part.active for part in one.classes.values()):,}",
                 format_bytes(one.weight_bytes, DIGITS), format_bytes(one.read_bytes_per_token, DIGITS)])  # fmt: skip
    headings = ["class", "parameters", "of one token", "bytes", "read by one token"]
    write_table(console, headings, rows, right={1, 2, 3, 4}, bold={len(rows) - 1})
    write_line(console, f"{one.bits_per_weight:.3f} bits per weight; {format_bytes_both(one.weight_bytes)}.")
    _write_layers(list(enumerate(one.layer_bytes)), console)
    for part in one.stored_besides:
        layers = f" of {part.layers} layer{'s' if part.layers > 1 else ''}" if part.layers else ""
        parameters = "" if part.parameters is None else f", {part.parameters:,} parameters"
        size = "" if part.bytes is None else f", {format_bytes(part.bytes, DIGITS)}"
        write_line(console, f"Stored besides, and not run in a plain decode: {part.kind}{layers}{parameters}{size}.")
    write_heading(console, f"What a sequence keeps, in {one.kv_format}")
    write_line(console, f"{one.kv_format_bytes_per_token:,} B for each token, in layers whose cache grows.")
    if one.kv_constant_bytes:
        size = format_bytes(one.kv_constant_bytes, DIGITS)
        write_line(console, f"{one.kv_window_bytes_per_token:,} B more for each token until windows and chunks are "
                            f"full, then {size}, however long it is.")  # fmt: skip
    if one.state_bytes_per_sequence:
        write_line(console, f"{format_bytes(one.state_bytes_per_sequence, DIGITS)} of recurrent state.")
    write_heading(console, "Arithmetic")
    flop = {name: format_flop(getattr(one, f"{name}_flops"), DIGITS)
            for name in ("decode", "attend", "prefill", "prefill_attend", "head", "index")}  # fmt: skip
    most = "; windows, chunks and picks: at most their size" if one.limited else ""
    attention = one.attend_flops > 0
    each = f", and {flop['attend']} for each position that it attends to{most}" if attention else ""
    write_line(console, f"Decode: {flop['decode']} a token{each}.")
    each = f", and {flop['prefill_attend']} for each pair of positions" if attention else ""
    write_line(console, f"Prefill: {flop['prefill']} a token{each}; the head's {flop['head']} for sampled positions "
                        "alone.")  # fmt: skip
    if one.index_flops:
        write_line(console, f"Indexers: {flop['index']} for each position besides, attended to or not.")
    rows = [[f"{at.context:,}", *_at(at)] for at in one.at]
    write_table(console, ["context", *AT], rows, right={0, 1, 2, 3, 4})
    write_list("Notes", one.notes, console)


def _write_layers(layers: Sequence[tuple[int, int]], console: Console) -> None:
    """Bytes of layers, those of one size in one line."""
    alike: dict[int, list[int]] = {}
    for number, size in layers:
        alike.setdefault(size, []).append(number)
    for size, numbers in sorted(alike.items(), key=lambda item: -item[0])[:SIZES]:
        named = f"all {len(numbers)} layers" if len(alike) == 1 and len(numbers) > 1 else _runs(numbers)
        write_line(console, f"{format_bytes(size, DIGITS)} in each of {named}." if len(numbers) > 1 else
                   f"{format_bytes(size, DIGITS)} in layer {numbers[0]}.")
    if len(alike) > SIZES:
        write_line(console, f"{len(alike) - SIZES} more sizes of layers, the smallest "
                            f"{format_bytes(min(alike), DIGITS)}; --json has all.")


def _runs(numbers: Sequence[int]) -> str:
    """Layer numbers with runs written short: "layers 0-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "layers " + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _write_stored(one: StoredSummary, console: Console) -> None:
    named = f" ({one.family})" if one.family else ""
    write_line(console, f"{one.name}{named}: what is stored", style="bold")
    write_line(console, f"Not read as a model: {one.reason}")
    if one.parameters is not None:
        write_line(console, f"{one.parameters:,} weights in {many(one.layers, 'layer')} and outside of them.")
    if one.weight_bytes is not None:
        bits = "" if one.bits_per_weight is None else f"; {one.bits_per_weight:.3f} bits per weight"
        write_line(console, f"{format_bytes_both(one.weight_bytes)}{bits}.")
    for heading, sizes in (("role", one.roles), ("type", one.types)):
        if sizes:
            write_heading(console, f"Bytes by {heading}")
            rows = [[name, f"{size:,}", format_bytes(size, DIGITS)] for name, size in sizes.items()]
            write_table(console, [heading, "bytes", ""], rows, right={1, 2})
    if one.layer_bytes:
        write_heading(console, "Bytes by layer")
        _write_layers(list(one.layer_bytes.items()), console)
    write_list("Notes", one.notes, console)


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 10**9 else f"{count / 1e6:.1f} M"
