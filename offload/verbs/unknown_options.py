"""What to write instead of an option that a verb does not have, and an example of one that it needs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches

from offload.errors import one_line
from offload.ranges import listed

MOST_NAMED = 6  # verbs that a message names
COUNT = re.compile(r"[1-9][0-9]{0,8}")
REQUIRED = "the following arguments are required: "  # as argparse begins the message
Parsers = Callable[[], argparse.ArgumentParser]
EXAMPLES = {
    "--requests": 'as --requests "fixed 8192"',
    "--target": "as --target 10tok/s",
    "-o/--output": "as -o FILE",
}


def said_of_required(message: str, words: Sequence[str], parser: argparse.ArgumentParser, root: Parsers) -> str:
    """argparse's message about what is missing, with an example of each, and what is to be said of other words given.

    words : those of the command line from this parser on; root : makes the parser of the whole command line.
    """
    unknown = _from_unknown(words, parser)
    tail = f"; and {said_of_unknown(unknown, parser, root)}" if unknown else "."
    shown = []
    for name in message.removeprefix(REQUIRED).split(", "):
        example = EXAMPLES.get(name)
        shown.append(f"{name} ({example})" if example and f"Write {name} " not in tail else name)
    return f"{REQUIRED}{', '.join(shown)}{tail}"


def said_of_unknown(unknown: Sequence[str], parser: argparse.ArgumentParser, root: Parsers) -> str:
    """The message about words that no option takes: what a verb has instead, the verbs that have the option, else the
    option that may have been meant.

    unknown : the words that were left over; root : makes the parser of the whole command line.
    """
    at = next((at for at, one in enumerate(unknown) if one.startswith("-") and len(one) > 1), None)
    if at is None:
        words = " ".join(one_line(one) for one in unknown[:6])
        return f"not understood: {words}. Quote a text that holds spaces; --help lists what is taken."
    given, with_value, value = unknown[at].partition("=")
    if not with_value:
        value = next(iter(unknown[at + 1 : at + 2]), "")
    return f"there is no option {one_line(given)}{_advice(given, value, parser, root)}"


def _advice(given: str, value: str, parser: argparse.ArgumentParser, root: Parsers) -> str:
    """What follows the name of an option that a parser does not have."""
    verb = parser.prog.partition(" ")[2]
    here = f" for {parser.prog}." if verb else "."
    known = [option for action in parser._actions for option in action.option_strings]
    holders = _holders(given, root()) if verb else []
    if (instead := INSTEAD.get((verb.partition(" ")[0], given))) is not None and given not in known:
        return f"{here} Write {instead(value)}" + (f" ({_named(holders)} {given})." if holders else ".")
    same = next((action for action in parser._actions if action.dest == given.lstrip("-").replace("-", "_")
                 and action.option_strings), None)  # fmt: skip
    if given in known:
        return f" before the verb. Write it behind: {parser.prog} ... {given}"
    if same is not None:
        return f"{here} Write {same.option_strings[0]}."
    if holders:  # what is only spelled alike would be another thing
        return f"{here} {_named(holders)} it; {parser.prog} --help lists what is taken here."
    plain = {option.replace("-", ""): option for option in known if option.startswith("--")}
    near = [plain[one] for one in get_close_matches(given.replace("-", "").casefold(), plain, n=1, cutoff=0.6)]
    return f'. Did you mean "{near[0]}"?' if near else ". --help lists all."


def _from_unknown(words: Sequence[str], parser: argparse.ArgumentParser) -> Sequence[str]:
    """The words from the first option that a parser does not have; none where it has all."""
    for at, word in enumerate(words):
        if word == "--":
            break
        if word.startswith("--") and word.partition("=")[0] not in parser._option_string_actions:
            return words[at:]
    return ()


def _holders(option: str, root: argparse.ArgumentParser) -> list[str]:
    """The verbs that have an option, "topology import" where few of a verb's own words do."""
    found: list[str] = []
    for verb, parser in _below(root):
        if option in parser._option_string_actions:
            found.append(verb)
        inner = [f"{verb} {name}" for name, one in _below(parser) if option in one._option_string_actions]
        found += inner if len(inner) < 3 else [verb]
    return found


def _below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _named(verbs: Sequence[str]) -> str:
    """ "offload step and need have"."""
    if len(verbs) > MOST_NAMED:
        return f"offload {', '.join(verbs[:MOST_NAMED])} and others have"
    listing = " and ".join(filter(None, [", ".join(verbs[:-1]), verbs[-1]]))
    return f"offload {listing} {'have' if len(verbs) > 1 else 'has'}"


# What says the same in other verbs


def _ranks(value: str) -> str:
    """ "gpu0..7" as tensor-parallel ranks: "--tp 8"."""
    try:
        names = listed(value)
    except ValueError:
        names = []
    return f"--tp {len(names)}" if names and all(re.fullmatch(r"gpu\d+", one) for one in names) else "--tp N"


def _gpus(value: str) -> str:
    """So many ranks as GPUs that work alike: "--compute gpu0..7"."""
    count = int(value) if COUNT.fullmatch(value) else 0
    return "--compute gpu0" if count == 1 else f"--compute gpu0..{count - 1 if count else 7}"


def _lengths(value: str) -> str:
    return f'--requests "fixed {value if COUNT.fullmatch(value) else 8192}"'


def _many(value: str) -> str:
    return f"--requests {value if COUNT.fullmatch(value) else 'COUNT'}xLENGTH"


INSTEAD: dict[tuple[str, str], Callable[[str], str]] = {
    ("memory", "--compute"): _ranks,
    ("memory", "--context"): _lengths,
    ("memory", "--batch"): _many,
    ("memory", "--generate"): lambda _: '--requests "fixed LENGTH", prompt and output together, and --prompt N',
    ("memory", "--kv"): lambda _: "--host-kv SIZE or --nvme-kv SIZE",
    **{(verb, "--tp"): _gpus for verb in ("step", "report", "need", "place", "sweep", "compare")},
    **{(verb, "--requests"): lambda _: "--batch N and --context N" for verb in ("step", "report", "need", "place",
                                                                                "sweep", "compare")},
}  # fmt: skip
