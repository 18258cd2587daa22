"""What tiers of KV are worth, as text: a cached prefix loaded or computed, and what a hand-over leaves exposed."""

from __future__ import annotations

from rich.console import Console

from offload.kv_tiers import HandOver, Hit
from offload.printing import number_text, write_heading, write_line, write_table
from offload.units import format_bytes, format_rate, format_seconds, format_share


def write_hit(hit: Hit, console: Console) -> None:
    """Print what a cached prefix costs either way."""
    write_heading(console, "The cached prefix: load it, or compute it again")
    rows = [[name, format_bytes(size, 4), format_share(size / hit.bytes)] for name, size in hit.tiers]
    write_table(console, ["served by", "bytes", "share"], rows, right={1, 2})
    write_line(console, f"{hit.positions:,} of {hit.prompt:,} positions of each prompt are found.")
    if not hit.loaded:
        write_line(console, "All of it lies where its layers run: nothing is loaded.")
    else:
        load, compute = format_seconds(hit.load_seconds), format_seconds(hit.compute_seconds)
        write_line(console, f"Loading {format_bytes(hit.loaded, 4)} takes {load} by itself, computing the same "
                            f"positions {compute}: {_verdict(hit)}.")
    write_line(console, f"The whole prefill, alone: {format_seconds(hit.with_hit)} with the hit, "
                        f"{format_seconds(hit.without)} without it.")
    if hit.loaded and hit.rate_needed is not None:
        write_line(console, f"Loading is as fast as computing at {format_rate(hit.rate_needed)}, at these lengths.")
    if hit.loaded:
        write_line(console, _length(hit))


def _verdict(hit: Hit) -> str:
    if hit.compute_seconds <= 0:
        return "it costs no time to compute them beside the rest"
    ratio = hit.load_seconds / hit.compute_seconds
    if ratio <= 0.8:
        return f"loading wins, {number_text(1 / ratio)} x as fast"
    if ratio < 1.25:
        return "near the break-even, where any overhead decides"
    return f"computing wins, {number_text(ratio)} x as fast"


def _length(hit: Hit) -> str:
    if hit.wins_from is None:
        return "At these rates a prefix of any length is computed in less time than it is loaded."
    if hit.wins_from == 1:
        return "At these rates a prefix of any length is loaded in less time than it is computed."
    return f"At these rates a prefix is worth loading from {hit.wins_from:,} positions on."


def write_hand_over(found: HandOver, console: Console) -> None:
    """Print what a hand-over takes and what of it is exposed."""
    write_heading(console, "The hand-over")
    write_line(console, f"{format_bytes(found.bytes, 4)} of KV go to {found.to}, each layer's as it is made: "
                        f"{format_seconds(found.seconds)} by themselves.")
    write_line(console, f"Exposed: one prefill alone takes {format_seconds(found.exposed)} longer with it.")
