# %% [markdown]
# # Which server?
# The same model, with as many layers at one GPU as fit and the others run by the CPU, on four machines: which is the
# fastest, is that certain, and what does it hang on?

# %%
from offload import compare
from offload.comparison import Candidate
from offload.words import plan_from_words

SERVERS = ("desktop-4090", "strix-halo-mini-pc", "gh200", "mac-studio-m3-ultra")
candidates = [
    Candidate("llama-3.1-70b:q8_0", server, plan_from_words("llama-3.1-70b:q8_0", server)) for server in SERVERS
]

# %% [markdown]
# The ranking, with the interval of each time and how sure each order is.

# %%
found = compare(candidates)
found

# %% [markdown]
# The best of them in full.

# %%
first = found.ranked[0]
first.step.topology

# %% [markdown]
# The answer.

# %%
for place, (entry, pair) in enumerate(zip(found.ranked, [*found.pairs, None], strict=True), 1):
    order = "" if pair is None else f"; before the next one: {pair.order}"
    print(f"{place}. {entry.server}: expected {1e3 * entry.expected.seconds:.0f} ms a token, floor "
          f"{1e3 * entry.floor.seconds:.0f} ms, {' and '.join(entry.binding)} busiest{order}")  # fmt: skip
print(f"{first.server} is the fastest, and the whole order is {'certain' if found.certain else 'open'}.")
