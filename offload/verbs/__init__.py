"""The verbs of the command line, a module each: `add` states its words, `run` answers. No arithmetic here."""

ANSWERED, NO, BAD_INPUT = 0, 1, 2  # exit status: answered, the answer is no, bad input
