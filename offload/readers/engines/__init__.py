"""Readers of what inference and training engines print: the model, where its parts were put, and how long it took.

Each module reads one engine's log as a `Run`; `recognise` tells by the content which engine it was.
"""
