# %% [markdown]
# # What is my floor?
# Llama 3.1 70B in 4 bits does not fit into an RTX 4090. With 38 of its 80 layers there and the CPU running the others:
# how fast can a token be at best, how fast is it likely to be, and what would make it faster?

# %%
from offload import compile_step, evaluate, plots
from offload.curves import floor_curve
from offload.displays import picture
from offload.words import plan_from_words

plan, topology = plan_from_words("llama-3.1-70b:q4_k_m", "desktop-4090", gpu_layers=38)
topology

# %% [markdown]
# The study holds everything that is known about one step. Look first at what is moved: a wrong plan shows there.

# %%
study = evaluate(topology, plan)
study

# %% [markdown]
# Over the rate of one memory: where the floor lies, what binds, and what a faster part would buy.

# %%
curve = floor_curve(compile_step(topology, plan), "dram0")
figure = picture(curve, study=study)
figure

# %%
plots.save(figure.axes, "what_is_my_floor.svg")

# %% [markdown]
# The answer.

# %%
best = min(study.changes, key=lambda change: change.seconds)
print(f"No schedule makes a token faster than {1e3 * study.floor.seconds:.0f} ms: "
      f"at most {study.tokens_per_s.floor:.2f} tokens/s.")  # fmt: skip
print(f"Expected: {1e3 * study.overlapped.seconds:.0f} ms, {study.tokens_per_s.overlapped:.2f} tokens/s.")
print(f"What shortens it most: {best.what}, to {1e3 * best.seconds:.0f} ms.")
