"""What a batch and speculation make of a link that streams weights: they move once for all tokens of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from offload.bounds import load_bound
from offload.errors import FormulaError, shown
from offload.given import all_not_negative, all_positive, finite_arrays
from offload.models.experts import tokens_per_step
from offload.plan import Amount


@dataclass(frozen=True, slots=True)
class StreamedBatch:
    """A step of B sequences whose weights, and perhaps KV, come over one link.

    seconds : of the step [s]. tokens_per_s : B / seconds. limit : what tokens_per_s approaches and never passes as B
    grows [1/s]; None where no KV is streamed: then nothing but other resources bounds it.
    """

    seconds: Amount
    tokens_per_s: Amount
    limit: Amount | None


@finite_arrays
def streamed_batch(weight_bytes: Amount, kv_bytes: Amount, rate: Amount, batch: Amount) -> StreamedBatch:
    """T = (W + B kv) / rate: weights move once a step for the whole batch, each sequence's KV by itself.

    weight_bytes : streamed in a step [B]. kv_bytes : streamed for each sequence [B]. rate : of the link [B/s]. batch :
    sequences. Numbers, or arrays that broadcast; exact for Fractions. A floor of any step that moves so much, and its
    time where the link is busy throughout. Raises FormulaError unless rate and batch are above 0, and something moves
    (an array of kv_bytes is above 0 throughout).
    """
    all_not_negative(weight_bytes=weight_bytes, kv_bytes=kv_bytes, arrays=True)
    all_positive(rate=rate, batch=batch, arrays=True)
    resident = not hasattr(kv_bytes, "shape") and kv_bytes == 0
    moved = {"weight_bytes (no KV is streamed)": weight_bytes} if resident else {"kv_bytes": kv_bytes}
    all_positive(arrays=True, **moved)
    seconds = load_bound({"link": rate}, [(weight_bytes, {"link": 1}), (kv_bytes, {"link": batch})]).seconds
    return StreamedBatch(seconds, batch / seconds, None if resident else rate / kv_bytes)


@dataclass(frozen=True, slots=True)
class SpeculatedPass:
    """One pass over the weights that checks drafted tokens.

    seconds : of the pass on the link [s]. tokens : that it yields on average. seconds_per_token : of the link [s].
    """

    seconds: Amount
    tokens: Amount
    seconds_per_token: Amount


def speculated_pass(weight_bytes: Amount, rate: Amount, acceptance: Amount, draft: Amount) -> SpeculatedPass:
    """Link time per token with speculation: W / rate over the tokens of a pass, (1 - a^(g+1)) / (1 - a).

    acceptance : a, chance that a drafted token is kept, independent of the others; draft : g, tokens drafted
    (`offload.models.experts.tokens_per_step`; Leviathan et al. 2023). weight_bytes : streamed by a pass [B]. rate :
    [B/s]. Raises FormulaError for amounts below 0, a rate of 0, or a chance that is none.
    """
    for name, value in (("acceptance", acceptance), ("draft", draft)):
        if isinstance(value, list | tuple) or getattr(value, "size", 1) == 0:
            raise FormulaError(f"{name}: {shown(value)} is neither a number nor an array with numbers in it.")
    return _pass(weight_bytes, rate, tokens_per_step(acceptance, draft))


@finite_arrays
def _pass(weight_bytes: Amount, rate: Amount, tokens: Amount) -> SpeculatedPass:
    all_not_negative(weight_bytes=weight_bytes, arrays=True)
    all_positive(rate=rate, arrays=True)
    seconds = load_bound({"link": rate}, [(weight_bytes, {"link": 1})]).seconds
    return SpeculatedPass(seconds, tokens, seconds / tokens)
