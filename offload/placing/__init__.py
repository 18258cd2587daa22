"""The best placement of a model on a server: of every one that a space of plans has, and how far it is from a bound.

`problem` says what may be placed where, `loads` and `tables` what each layer then puts on the machine, `bound` what no
mix of these beats (a linear program), `search` finds the best by evaluating whole plans, `engines` and `text` write it
down.
"""

from offload.placing.answer import Answer, Compared, best_of, plan_question, powers_of_two
from offload.placing.batches import BATCHES, Placing, place
from offload.placing.bound import Price, Relaxation, regret, relaxed
from offload.placing.engines import Engine, engines_of
from offload.placing.problem import LEFT_OUT, Family, families
from offload.placing.search import MOST, NEAR, OBJECTIVES, Found, Objective, streams
from offload.placing.tables import Adder, Question, Table, table_of
from offload.placing.text import overlap_to_data, placement_to_data, write_yaml

__all__ = [
    "BATCHES", "LEFT_OUT", "MOST", "NEAR", "OBJECTIVES", "Adder", "Answer", "Compared", "Engine", "Family", "Found",
    "Objective", "Placing", "Price", "Question", "Relaxation", "Table", "best_of", "engines_of", "families",
    "overlap_to_data", "place", "placement_to_data", "plan_question", "powers_of_two", "regret", "relaxed",
    "streams", "table_of", "write_yaml",
]  # fmt: skip
