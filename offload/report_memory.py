"""How many requests fit as text for a person: the memory line by line, the counts, the risk, what would change it."""

from __future__ import annotations

from rich.console import Console

from offload.given import surely
from offload.memory import SHARE, Memory
from offload.memory_behind import Tier, groups_of
from offload.memory_curve import Concurrency, Fit
from offload.models.levers import Reach
from offload.models.overflow import Risk
from offload.models.serving import UNUSED, Line, RankBudget, gpus_of
from offload.printing import and_text, write_heading, write_line, write_list, write_table
from offload.units import format_bytes, format_bytes_both, format_flops, format_rate, format_seconds, format_share

THINGS = {"context": "the length of each request", "requests": "the number of requests",
          "chunk": "the prefill chunk (new positions in one step)"}  # fmt: skip
SMALL = 1e-6  # a risk below it is not told apart from none
ROUGH = 0.1  # of a risk: where its error is more than that, the requests are called at least so many
BOUND = "a bound to test, not a promise that an engine runs: engines allocate in their own ways"


def write_memory(answer: Memory, console: Console) -> None:
    """Print the answer."""
    rank, serving = answer.budget.tightest, answer.serving
    gpus = gpus_of(serving.tp, serving.pp, serving.ep)
    ranks = f", {gpus} GPUs (tp {serving.tp}, pp {serving.pp}{f', ep {serving.ep}' * (serving.ep > 1)})"
    weights = f"weights in {answer.weights}, " if answer.weights else ""
    write_line(console, f"{answer.model.name}: how many requests fit; {weights}KV in {serving.format}"
                        + ranks * (gpus > 1), style="bold")
    _write_lines(answer, rank, console)
    write_heading(console, "Requests")
    for line in _requests(answer, rank):
        write_line(console, line)
    if answer.curve:
        _write_curve(answer, console)
    _write_reach(answer, console)
    _write_levers(answer, console)
    _write_host(answer, console)
    _write_tiers(answer, console)
    write_list("Not to be forgotten", [*answer.warnings, BOUND], console)


def _write_lines(answer: Memory, rank: RankBudget, console: Console) -> None:
    first, last = rank.layers
    stages = len(answer.budget.ranks)
    where = f" (tightest of {stages} stages: layers {first}-{last})" if stages > 1 else ""
    title = "Memory of one GPU" if answer.weights else "Memory for KV, the keys and values of each position"
    if answer.by_risk is not None and answer.asked is not None and surely(answer.now) < answer.asked:
        where += f", with all {answer.asked:,} requests at once"
    write_heading(console, f"{title}{where}")
    rows = [["capacity", format_bytes_both(answer.serving.capacity), "given"]]
    rows += [[_named(answer, line), "-" + format_bytes_both(line.bytes), line.kind] for line in rank.lines]
    if rank.lines:
        rows.append(["left for KV", format_bytes_both(rank.left), ""])
    write_table(console, ["", "bytes", "where from"], rows, right={1}, bold={len(rows) - 1})
    if rank.left <= 0:
        write_line(console, f"Nothing is left for KV: {format_bytes(-rank.left)} too much is taken.", style="bold")
    elif rank.growing:
        each = f"{rank.growing:,} B for each position"
        ranks = answer.serving.tp * len(answer.budget.ranks)
        each += f" on this rank, {answer.growing_everywhere:,} B on all {ranks}" * (ranks > 1)
        positions = f"{rank.alone:,} positions" + " here" * (len(answer.budget.ranks) > 1)
        blocks = f", {surely(rank.alone) // rank.block:,} blocks of {rank.block}" if rank.block > 1 else ""
        if rank.full:
            write_line(console, f"{each}, and {_besides(answer, rank)}: one request could have {positions}{blocks}.")
        else:
            write_line(console, f"{each}: {positions}{blocks}.")
    else:
        write_line(console, f"No layer grows: {_besides(answer, rank)}.")


def _besides(answer: Memory, rank: RankBudget) -> str:
    """What a request keeps in windows and states, in words."""
    own = answer.serving.layers[rank.layers[0] : rank.layers[1] + 1]
    windows = [one.cache.window for one in own if one.cache.kind in ("window", "chunk") and not one.cache.shared]
    if not windows:
        return f"{rank.full:,} B for each request whatever its length"
    return f"at most {rank.full:,} B for each request in windows, which are full from {max(windows):,} positions on"


def _named(answer: Memory, line: Line) -> str:
    """A line's words, with the share that was given."""
    unused = 1 - float(answer.serving.usable)
    return f"{line.what} ({format_share(unused)} of the capacity)" if line.what == UNUSED else line.what


def _requests(answer: Memory, rank: RankBudget) -> list[str]:
    lengths, found = answer.lengths, []
    alike = answer.alike
    if answer.asked is not None:
        stays = surely(answer.left)
        base = f" of the KV memory ({format_bytes(rank.left)})"
        share = f", {format_share(abs(stays) / rank.left)}{base}" if rank.left > 0 and -stays < 10 * rank.left else ""
        word = "left" if stays >= 0 else "missing"
        found.append(f"{answer.now:,} of {answer.asked:,} fit, admitted in order; all of them take "
                     f"{format_bytes(surely(answer.used))}: {format_bytes(abs(stays))} {word}{share}.")  # fmt: skip
        product = int(surely(answer.shortcut))
        says = "as the shortcut, count x longest, says" if product == answer.stored else "the shortcut, count x " \
            f"longest, says {product:,}"
        found.append(f"Stored positions {answer.stored:,}{',' if product == answer.stored else ';'} {says}.")
        if answer.by_risk is not None:
            found.append(f"Requests drawn from these {answer.asked:,}: mean {lengths.mean:,.0f}, 99 % up to "
                         f"{lengths.quantile(SHARE):,}.")  # fmt: skip
        elif alike:
            found.append(f"All have one length, so risk does not arise: {_count(answer.at_largest)} requests fit.")
    elif alike:
        found.append(f"Lengths: {lengths.text}, so risk does not arise: {_count(answer.at_largest)} requests fit.")
    else:
        found.append(f"Lengths: {lengths.text}; mean {lengths.mean:,.0f}, 99 % up to {lengths.quantile(SHARE):,}.")
    if answer.by_risk is not None and not alike:
        rough = "at least " * (answer.by_risk.error > max(SMALL, ROUGH * answer.by_risk.value))
        found.append(f"By risk: {rough}{answer.by_risk.requests:,} at {format_share(answer.risk)} risk that all "
                     f"together overflow ({_risk(answer.by_risk)}; one more: "
                     f"{_risk(surely(answer.beyond))}).")  # fmt: skip
        if rough:
            found.append(f"So many positions are counted in wide steps, which overstates the risk by up to "
                         f"{_share(answer.by_risk.error)}.")  # fmt: skip
    if answer.mean_used is not None and not alike:
        found += _on_average(answer)
    if not alike:
        found.append(_worst(answer))
    prefix = answer.serving.shared_prefix
    if answer.prompt is not None:
        output, start = f"all but the prompt, {answer.prompt:,.0f} on average,", "that"
    else:
        output, start = (f"all but the prefix of {prefix:,}", "that") if prefix else ("all of its length", "none")
    found.append(f"At a random moment of steady operation a request has {answer.steady:,.0f} positions stored on "
                 f"average, if {output} is output: it grows from {start}, and long ones are seen more often. Of that "
                 f"length {_count(answer.at_steady)} fit now.")  # fmt: skip
    if (text := _preemption(answer)) is not None:
        found.append(text)
    return found


def _on_average(answer: Memory) -> list[str]:
    """What the requests admitted by risk take at their mean, and the shortcut beside them."""
    count, found = surely(answer.by_risk).requests, []
    if count:
        share = format_share(surely(answer.mean_left_share))
        found.append(f"On average {count:,} such take {format_bytes(surely(answer.mean_used))} when all are at "
                     f"their full length: {share} of the KV memory ({format_bytes(surely(answer.mean_base))}) "
                     "left.")  # fmt: skip
    mean = answer.lengths.mean
    product = f", says {count * mean:,.0f} positions for {count:,} and" if count else ""
    found.append(f"The shortcut, count x mean{product} would admit {_count(answer.at_mean)}.")
    return found


def _preemption(answer: Memory) -> str | None:
    """What one preemption costs, and at which rates; a server's own are peaks, so it takes at least as long."""
    cost, serving, found = answer.preemption, answer.serving, []
    if cost.swap is not None:
        time, rate = format_seconds(cost.swap), format_rate(surely(cost.link_rate))
        found.append(f"{time} to swap it out and back (at the {rate} given)" if cost.link is None else
                     f"at least {time} to swap it out and back (over {cost.link}, at its peak of {rate})")
    if cost.recompute is not None:
        gpus = f"{serving.tp} GPUs" if serving.tp > 1 else "one GPU"
        turn = " of one stage after the other" if serving.pp > 1 else ""
        found.append(f"{format_seconds(cost.recompute)} to compute it again (at the "
                     f"{format_flops(surely(cost.flops))} given, on {gpus}{turn})")  # fmt: skip
    if not found:
        return None
    stays = ", whose prefix stays" if serving.shared_prefix >= serving.block else ""
    return f"One preemption of a request of mean length{stays}: {', or '.join(found)}."


def _worst(answer: Memory) -> str:
    """How many fit if each is held at a high quantile, and at the longest where that is another length."""
    lengths = answer.lengths
    if lengths.largest is None:
        return (f"Each held at its 99th percentile: {_count(answer.at_share)}; each at its longest: no number is safe, "
                "nothing bounds a length.")  # fmt: skip
    longest = f"ach held at the longest, {lengths.largest:,}: {_count(answer.at_largest)}."
    if lengths.quantile(SHARE) == lengths.largest:
        return f"E{longest}"
    return f"Each held at the 99th percentile, {lengths.quantile(SHARE):,}: {_count(answer.at_share)}; e{longest}"


def _write_curve(answer: Memory, console: Console) -> None:
    shown = [one for one in answer.curve if one.value >= SMALL or one is answer.curve[-1]]
    if all(one.value in (0.0, 1.0) for one in shown):
        return
    write_heading(console, "Risk of overflow against concurrency")
    write_table(console, ["requests", "risk"], [[f"{one.requests:,}", _risk(one)] for one in shown], right={0, 1})


def _write_reach(answer: Memory, console: Console) -> None:
    alike = f"of {answer.lengths.largest:,} positions" if answer.alike else "of the mean length"
    if answer.reaches:
        write_heading(console, "What breaks the fit first")
        first, *others = answer.reaches
        thing = THINGS[first.what]
        if first.most is None:
            write_line(console, "Nothing does: no number of requests and no length of them fills this memory.")
            others = []
        elif not first.most:
            write_line(console, "It does not fit as it is, and neither fewer or shorter requests nor a "
                                f"smaller chunk alone would; requests are {alike}.")  # fmt: skip
            others = []
        elif not answer.requests_fit and first.most < first.now:
            write_line(console, f"It does not fit as it is; {thing} is nearest to fitting: {_reach(first)}; requests "
                                f"are {alike}, all else as it is.")  # fmt: skip
        elif not answer.requests_fit:
            write_line(console, f"Of these lengths they do not fit; {alike} they would, and then {thing} breaks the "
                                f"fit first: {_reach(first)}.")  # fmt: skip
        else:
            write_line(console, f"{thing[:1].upper()}{thing[1:]} breaks the fit first: {_reach(first)}; requests are "
                                f"{alike}, all else as it is.")  # fmt: skip
        for one in others:
            write_line(console, f"- then {THINGS[one.what]}: {_reach(one)}")
    if answer.longest is not None:
        limit = answer.model.max_positions
        beyond = f"; the model states {limit:,}" if limit is not None and limit < answer.longest else ""
        write_line(console, f"The longest context for one request alone: {answer.longest:,} positions{beyond}.")


def _reach(one: Reach) -> str:
    most = "nothing stops it" if one.most is None else f"at most {one.most:,}" if one.most else "not even 1 fits"
    return f"{one.now:,} now, {most}"


def _write_levers(answer: Memory, console: Console) -> None:
    write_heading(console, "What would change it, each change alone")
    rows = [[one.what, _gain(one.positions_gained), _gain(one.requests_gained)]
            for one in answer.levers if not one.reason]  # fmt: skip
    requests = "requests at the same risk" if answer.by_risk is not None else "requests of the longest"
    if answer.asked is None and answer.by_risk is None:
        requests = "requests"
    write_table(console, ["change", "positions", requests], rows, right={1, 2})
    for one in answer.levers:
        if one.reason:
            write_line(console, f"{one.what}: {one.reason}")


def _write_host(answer: Memory, console: Console) -> None:
    host = answer.host
    if host is None:
        return
    write_heading(console, "Host memory")
    rows = [[line.what, format_bytes_both(line.bytes), line.kind] for line in host.lines]
    rows.append(["in all", format_bytes_both(host.total), ""])
    write_table(console, ["", "bytes", "where from"], rows, right={1}, bold={len(rows) - 1})
    if host.capacity is None:
        write_line(console, "Its capacity is not known: --host-memory SIZE says it.")
    elif host.missing:
        write_line(console, f"It does not fit: {format_bytes_both(host.missing)} more than the "
                            f"{format_bytes_both(host.capacity)} that there are.", style="bold")  # fmt: skip
    else:
        left = host.capacity - host.total
        write_line(console, f"It fits: {format_bytes(left)} left, {format_share(left / host.capacity)} of host memory "
                            f"({format_bytes_both(host.capacity)}).")  # fmt: skip
    if host.step_bytes:
        time = "" if host.step_seconds is None else f", at least {format_seconds(host.step_seconds)} at peak rate"
        write_line(console, f"Each step brings {format_bytes(host.step_bytes)} of weights to the GPUs{time}; these "
                            "layers run there, and their KV stays there. `offload step` counts a step.")  # fmt: skip


def _write_tiers(answer: Memory, console: Console) -> None:
    if not answer.tiers:
        return
    write_heading(console, "Slower memories for KV")
    rows = [
        [one.name, format_bytes(one.capacity), _gain(one.kv.positions), _gain(one.kv.requests),
         "not known" if one.kv.fetch_seconds is None else f"at least {format_seconds(one.kv.fetch_seconds)}"]
        for one in answer.tiers
    ]  # fmt: skip
    write_table(console, ["", "size", "positions", "requests", "fetch of one"], rows, right={1, 2, 3, 4})
    length, tier = max(1, round(answer.lengths.mean)), answer.tiers[0]
    ranks = len(answer.budget.ranks) * answer.serving.tp
    parts = f", on {ranks} ranks that each move their own part at once" if ranks > 1 else ""
    write_line(console, f"Requests are of the mean length, {length:,} positions or {format_bytes(tier.request_bytes)}"
                        f"{parts}.")
    if (groups := groups_of(answer.serving)) > 1:
        write_line(console, f"Positions and requests are one group's share, of {groups} groups of ranks with requests "
                            "of their own.")  # fmt: skip
    if any(one.kv.fetch_seconds is not None for one in answer.tiers):
        write_line(console, "Rates are taken as peaks: a fetch takes at least this long.")
    if any(one.kv.fetch_seconds is None for one in answer.tiers):
        write_line(console, "Where a rate is not known, --link RATE (host memory) and --nvme-rate RATE say it.")
    if tier.kv.recompute_seconds is not None:
        write_line(console, _verdict(answer.tiers, ranks))


def _verdict(tiers: tuple[Tier, ...], ranks: int) -> str:
    """Whether fetching may be quicker than computing again; a peak rate shows only where it cannot be."""
    kv = tiers[0].kv
    together = " of all ranks together" if ranks > 1 else ""
    text = (f"Computing one again takes {format_seconds(surely(kv.recompute_seconds))}, as long as fetching it at "
            f"{format_rate(surely(kv.break_even))}{together}")  # fmt: skip
    for pays, words in ((True, "fetching may be quicker from"), (False, "even at peak rate it is slower from")):
        if names := [one.name for one in tiers if one.kv.pays is pays]:
            text += f"; {words} {and_text(names)}"
    return f"{text}."


def write_concurrency(path: str, found: Concurrency, console: Console) -> None:
    """Print what a figure shows."""
    write_heading(console, f"Figure: {path}")
    write_line(console, "Requests that fit if all have one length:")
    for name, length in found.marks:
        counts = [f"{_at(curve.points, length):,} with KV in {curve.format}" for curve in found.curves]
        write_line(console, f"- {name} {length:,}: {and_text(counts)}")


def _at(points: tuple[Fit, ...], length: int) -> int:
    return next((one.requests for one in points if one.length == length), 0)


def _gain(count: int | None) -> str:
    return "-" if count is None else f"{count:+,}"


def _count(count: int | None) -> str:
    return "no limit" if count is None else f"{count:,}"


def _risk(one: Risk) -> str:
    """A risk; of ranks that differ the bounds of it, where they are not the same."""
    text = _share(one.value)
    least = text if one.least is None else _share(one.least)
    return text if least == text else f"{least} to {text}"


def _share(value: float) -> str:
    return format_share(value) if value >= SMALL else "below 0.0001 %"
