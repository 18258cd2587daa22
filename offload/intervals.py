"""Intervals of the inputs of a step, and what they leave open in its answers."""
