"""A report as one page that opens offline: the answer, its tables and sources, and sliders that redraw it.

Nothing is fetched from anywhere. What the sliders show is run from Python's own evaluation (`programs`): a step is
compiled at each stop of batch, context and residency (`stops`), and the page only adds, divides and takes maxima.
"""
