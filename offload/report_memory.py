"""How many requests fit as text for a person: the memory line by line, the counts, the risk, what would change it."""

from __future__ import annotations

from rich.console import Console

from offload.memory import Memory
from offload.models.serving import RankBudget
from offload.printing import write_heading, write_line, write_list, write_table
from offload.units import format_bytes, format_bytes_both, format_seconds, format_share

WORDS = {"context": "positions of each request", "requests": "requests", "chunk": "positions in a prefill chunk"}


def write_memory(answer: Memory, console: Console) -> None:
    """Print the answer."""
    rank, serving = answer.budget.tightest, answer.serving
    ranks = serving.tp * serving.pp
    weights = f", weights in {answer.weights}" if answer.weights else ""
    write_line(console, f"{answer.model.name}{weights}, KV in {serving.format}"
                        + (f", {ranks} GPUs (tp {serving.tp}, pp {serving.pp})" if ranks > 1 else ""), style="bold")
    _write_lines(answer, rank, console)
    write_heading(console, "Requests")
    for line in _requests(answer, rank):
        write_line(console, line)
    if answer.curve:
        _write_curve(answer, console)
    _write_reach(answer, console)
    _write_levers(answer, console)
    notes = [*answer.warnings, "a bound to test, not a promise that an engine runs: engines allocate in their own ways"]
    write_list("Not to be forgotten", notes, console)


def _write_lines(answer: Memory, rank: RankBudget, console: Console) -> None:
    first, last = rank.layers
    stages = len(answer.budget.ranks)
    where = f" (tightest of {stages} stages: layers {first + 1}-{last + 1})" if stages > 1 else ""
    write_heading(console, f"Memory of one GPU{where}" if answer.weights else f"KV memory of one GPU{where}")
    rows = [["capacity", format_bytes_both(answer.serving.capacity), "given"]]
    rows += [[line.what, "-" + format_bytes_both(line.bytes), line.kind] for line in rank.lines]
    rows.append(["left for KV", format_bytes_both(rank.left), ""])
    write_table(console, ["", "bytes", ""], rows, right={1}, bold={len(rows) - 1})
    if rank.left <= 0:
        write_line(console, f"Nothing is left for KV: {format_bytes(-rank.left)} too much is taken.", style="bold")
    elif rank.growing:
        each = f"{rank.growing:,} B for each position"
        fixed = f", and {rank.fixed:,} B for each request whatever its length" if rank.fixed else ""
        blocks = f", {rank.blocks:,} blocks of {rank.block}" if rank.block > 1 else ""
        write_line(console, f"{each}{fixed}: {rank.positions:,} positions{blocks}.")
    else:
        write_line(console, f"No layer grows: {rank.fixed:,} B for each request, whatever its length.")


def _requests(answer: Memory, rank: RankBudget) -> list[str]:
    lengths, found = answer.lengths, []
    if answer.asked is not None:
        stays = answer.left
        base = f" of the KV memory ({format_bytes(rank.left)})"
        share = f", {format_share(abs(stays) / rank.left)}{base}" if rank.left > 0 else ""
        word = "left" if stays >= 0 else "missing"
        found.append(f"{answer.now:,} of {answer.asked:,} fit, admitted in order; all of them take "
                     f"{format_bytes(answer.used)}: {format_bytes(abs(stays))} {word}{share}.")  # fmt: skip
        product = answer.asked * lengths.largest
        if product * rank.growing != answer.used:
            found.append(f"Stored positions {answer.stored:,}; the shortcut, count x longest, says {product:,}.")
    else:
        found.append(f"Lengths: {lengths.text}; mean {lengths.mean:,.0f}, 99 % up to {lengths.quantile(0.99):,}.")
    if answer.by_risk is not None:
        found.append(f"By risk: {answer.by_risk.requests:,} at {format_share(answer.risk)} risk that all together "
                     f"overflow ({_risk(answer.by_risk.value)}; one more: {_risk(answer.beyond.value)}).")  # fmt: skip
    longest = "no number is safe, nothing bounds a length" if lengths.largest is None else _count(answer.at_largest)
    found.append(f"Each held at its 99th percentile: {_count(answer.at_share)}; each at its longest: {longest}.")
    found.append(f"In steady operation a request has {answer.steady:,.0f} positions stored on average, if all of its "
                 "length is output: half of it, and long ones are seen more often.")  # fmt: skip
    costs = []
    if answer.swap is not None:
        costs.append(f"{format_seconds(answer.swap)} to swap it out and back")
    if answer.recompute is not None:
        costs.append(f"{format_seconds(answer.recompute)} to compute it again")
    if costs:
        found.append(f"One preemption of a request of mean length: {' or '.join(costs)}, at the rates given.")
    return found


def _write_curve(answer: Memory, console: Console) -> None:
    write_heading(console, "Risk of overflow against concurrency")
    shown = [one for one in answer.curve if one.value >= 1e-6 or one is answer.curve[-1]]
    write_table(console, ["requests", "risk"], [[f"{one.requests:,}", _risk(one.value)] for one in shown], right={0, 1})


def _write_reach(answer: Memory, console: Console) -> None:
    if answer.reaches:
        alike = "of the mean length" if answer.asked is None else "as long as the longest"
        write_heading(console, f"What breaks the fit first, for requests {alike}, all else as it is")
    for one in answer.reaches:
        most = "nothing stops it" if one.most is None else f"at most {one.most:,}" if one.most else "not even 1 fits"
        write_line(console, f"- {WORDS[one.what]}: {one.now:,} now, {most}")
    if answer.longest is not None:
        write_line(console, f"The longest context for one request alone: {answer.longest:,} positions.")


def _write_levers(answer: Memory, console: Console) -> None:
    write_heading(console, "What would change it")
    rows = [[one.what, _gain(one.positions_gained), _gain(one.requests_gained)]
            for one in answer.levers if not one.reason]  # fmt: skip
    requests = "requests" if answer.asked is None else "requests of the longest"
    write_table(console, ["change", "positions", requests], rows, right={1, 2})
    for one in answer.levers:
        if one.reason:
            write_line(console, f"{one.what}: {one.reason}")


def _gain(count: int | None) -> str:
    return "-" if count is None else f"{count:+,}"


def _count(count: int | None) -> str:
    return "no limit" if count is None else f"{count:,}"


def _risk(value: float) -> str:
    return format_share(value) if value >= 1e-6 else "below 0.0001 %"
