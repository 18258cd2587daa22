# %% [markdown]
# # How many layers, and how many requests at once?
# On a desktop each layer at the GPU saves time, and each sequence of a batch takes room for its cache. Which choice of
# both that still fits yields the most tokens per second? And were the layers streamed instead, how fast a link is
# enough?

# %%
from offload import plots, sweep
from offload.displays import picture
from offload.sweeps import Words

desktop = Words("llama-3.1-70b:q4_k_m", "desktop-4090")
grid = sweep(desktop, ["gpu-layers=0:45:16", "batch=1:16"])
grid

# %% [markdown]
# As a map: colours are times, regions are what binds, and what does not fit is hatched.

# %%
grid.picture(subject="llama-3.1-70b q4_k_m on desktop-4090")

# %% [markdown]
# With one sequence, over layers: times add, so the line is straight.

# %%
layers = picture(plots.residency(grid.at(batch=1), subject="llama-3.1-70b q4_k_m on desktop-4090, batch 1"))
layers

# %%
plots.save(layers.axes, "layers.svg")

# %% [markdown]
# All other layers streamed to the GPU, over the rate of the link, for a dark page.

# %%
streamed = Words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=38, compute="gpu0")
rates = sweep(streamed, ["pcie0.rate=8GB/s:256GB/s:120log"])
rates.picture(theme="dark", subject="38 layers at the GPU, the others streamed to it")

# %% [markdown]
# The answer.

# %%
best = grid.best(1, by="tokens")[0]
count, batch = best.values["gpu-layers"], best.values["batch"]
print(f"Most tokens per second that fit, at the floor: {best.tokens_per_s:.1f}, with {count} layers at the GPU and a "
      f"batch of {batch}.")  # fmt: skip
link = rates.axes[0]
for change in rates.crossovers():
    rate = link.shown(change.place + 1)
    print(f"From about {rate} of the link on, {change.after} binds and no longer {change.before}.")
print(f"A link of 256 GB/s instead of 8 makes the floor {rates.floor[0] / rates.floor[-1]:.1f} times as fast.")
