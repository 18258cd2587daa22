"""The least time in which demands can be met that may go several ways: solved in floats, proved in rationals.

A demand is split over ways; a way loads rates (B_r T is what a resource serves in time T) and may fill stores of fixed
size. SciPy's HiGHS solves it; its status proves nothing (badly scaled, it calls wrong answers optimal), so both of its
answers are made into rationals and weighed exactly: prices give a lower bound, shares a time that is attained.
"""

from offload.lp.highs import earlier_first, solve
from offload.lp.problem import ONE, ZERO, Problem, Solution, Table, Way, distance, loads_of, lower_bound, rational

__all__ = [
    "ONE",
    "ZERO",
    "Problem",
    "Solution",
    "Table",
    "Way",
    "distance",
    "earlier_first",
    "loads_of",
    "lower_bound",
    "rational",
    "solve",
]
