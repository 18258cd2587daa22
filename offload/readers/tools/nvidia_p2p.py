"""`nvidia-smi topo -p2p r`: whether a GPU reaches another's memory directly.

Which capability was asked for (r, w, n, a, p) is not in the output; it is taken from a command line above, if pasted.
"""

from __future__ import annotations

import re

from offload.errors import ReadingError, shown
from offload.readers.tools.finding import Device, Finding, Machine, Peer
from offload.readers.tools.matrix import Matrix, gpu_number, matrices
from offload.readers.tools.text import Text

LOOKS_LIKE = "nvidia-smi topo -p2p"
WHY = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it",
    "NS": "not supported",
    "DR": "disabled by a registry key",
}
COMMAND = re.compile(r"topo\s+(?:-p2p|--p2pstatus)[ =]+([rwnap])\b")
CAPABILITIES = {"r": "reading", "w": "writing", "n": "NVLink", "a": "atomics", "p": "prop"}


def is_it(text: Text) -> bool:
    """Whether a text holds such a matrix."""
    return any(_is_p2p(one) for one in matrices(text))


def read(text: Text) -> Finding:
    """Devices "gpuN" and, for each ordered pair, whether the first reaches the second and if not, why.

    Of several matrices, reads and writes count: a pair must have both. Raises ReadingError for matrices that differ
    without a command line above each, of different GPUs, or none about reads or writes.
    """
    found = [one for one in matrices(text) if _is_p2p(one)]
    asked = [(one, _asked(text, one)) for one in found]
    wanted = [(one, letter) for one, letter in asked if letter in (None, "r", "w")]
    if not any(one.rows for one in found):
        raise ReadingError("holds no whole row of nvidia-smi topo -p2p. Save its full output: nvidia-smi topo -p2p r")
    if not wanted:
        only = " and ".join(CAPABILITIES[letter or ""] for _, letter in asked)
        raise ReadingError(f"tells of {only} alone. Peer copies need: nvidia-smi topo -p2p r > FILE")
    if len({one.names for one, _ in wanted}) > 1:
        raise ReadingError("holds matrices of different GPUs. Give one machine's output in a file.")
    if len({one.square() for one, letter in wanted}) > 1 and any(letter is None for _, letter in wanted):
        raise ReadingError(
            f"line {wanted[0][0].line} and line {wanted[-1][0].line} begin matrices of nvidia-smi topo -p2p that "
            "differ. Which capability each shows is not in the output: keep the one of topo -p2p r."
        )
    assumed = []
    if any(letter is None for _, letter in wanted):
        assumed.append("the matrix is of peer reads (topo -p2p r): which was asked for is not in the output.")
    unknown = ["rates, links and NUMA nodes: nvidia-smi topo -p2p does not tell them."]
    odd = [f"line {line}: the row of {name} is cut." for one, _ in wanted for line, name in one.cut]
    peers = tuple(_peers([one for one, _ in wanted], unknown, odd))
    if any(not peer.works for peer in peers):
        assumed.append("a pair without peer access copies through host memory.")
    matrix = wanted[0][0]
    devices = [
        Device(f"gpu{number}", "gpu", number, line=matrix.rows[name].line if name in matrix.rows else matrix.line)
        for name in matrix.names
        if (number := gpu_number(name)) is not None
    ]
    machine = Machine(devices=tuple(devices), peers=peers)
    return Finding(LOOKS_LIKE, machine, assumed=tuple(assumed), unknown=tuple(unknown), odd=tuple(odd))


def _is_p2p(matrix: Matrix) -> bool:
    if matrix.headings or any(gpu_number(name) is None for name in matrix.names):
        return False
    cells = {cell for row in matrix.rows.values() for cell in row.cells}
    return bool(cells & {"OK", *WHY}) or (cells == {"X"} and len(matrix.names) == 1)


def _asked(text: Text, matrix: Matrix) -> str | None:
    """The letter in the command line that stands in the ten lines above a matrix, if one does."""
    for line in reversed(text.lines[max(0, matrix.line - 11) : matrix.line - 1]):
        if match := COMMAND.search(line.text):
            return match[1]
        if re.match(r"\s*GPU[0-9]", line.text):
            return None
    return None


def _peers(found: list[Matrix], unknown: list[str], odd: list[str]) -> list[Peer]:
    peers = []
    for first in found[0].names:
        for second in found[0].names:
            told = [(cell, one.rows[first].line) for one in found if (cell := one.cell(first, second)) is not None]
            a, b = (f"gpu{gpu_number(name)}" for name in (first, second))
            if first == second:
                wrong = [(cell, line) for cell, line in told if cell != "X"]
                odd += [f"line {line}: {first} to itself is {shown(cell)}, not X." for cell, line in wrong]
            elif not told:
                unknown.append(f"{a} to {b}: the row of {first} is missing or cut.")
            elif refused := next(((WHY[cell], line) for cell, line in told if cell in WHY), None):
                peers.append(Peer(a, b, False, *refused))
            elif all(cell == "OK" for cell, _ in told):
                peers.append(Peer(a, b, True, line=told[0][1]))
            elif all(cell in ("OK", "U") for cell, _ in told):
                unknown.append(f"{a} to {b}: line {told[0][1]} says U, unknown.")
            else:
                cell, line = next(one for one in told if one[0] != "OK")
                odd.append(f"line {line}: {first} to {second} is {shown(cell)}, no word of nvidia-smi topo -p2p.")
    return peers
