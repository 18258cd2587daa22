"""What a drive is called and how it is attached, without what names this one drive of all: serial numbers and the like.

Makers' model numbers and serial numbers look alike. A word of a model is dropped where the output tells it as the
serial number, where it is a world-wide name, or where it has as long a run of digits as serial numbers have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from offload.errors import one_line

OWN = ("serial", "wwn", "uuid", "ptuuid", "id", "id-link", "SerialNumber", "UUID", "NGUID", "EUI64", "WWID")
# Seven digits in a row, or five at the end of a longer word, stand in serial numbers; model numbers have fewer.
SERIAL = re.compile(
    r"\d{7}|^.{2,}\d{5}$|^(?:0x|eui\.|nqn\.|naa\.|uuid\.)|^(?:[0-9a-f]{2}[:-]){5}|^[0-9a-f]{8}-[0-9a-f]{4}-",
    re.IGNORECASE,
)
CALLED = re.compile(r"\b(?:s/?n|serial(?: ?(?:no|number))?)\.?[ :=#]*\S+", re.IGNORECASE)
BY_NAME = (("nvme", "nvme"), ("vd", "virtio"), ("xvd", "xen"), ("mmcblk", "mmc"))
TRANSPORTS = ("sata", "ata", "sas", "spi", "usb", "nvme", "virtio", "mmc", "iscsi", "fc", "fcoe", "nbd", "rbd")
OF_OTHERS = ("iscsi", "fc", "fcoe", "nbd", "rbd")  # drives of other hosts


def model_of(said: object, entry: Mapping[str, Any]) -> str:
    """A drive's model in plain words; "" where it is not said. entry : all that is told of the drive."""
    if not isinstance(said, str):
        return ""
    own = [value.strip() for key in OWN if isinstance(value := entry.get(key), str) and len(value.strip()) >= 4]
    text = CALLED.sub(" ", said)
    for value in own:
        text = text.replace(value, " ")
    words = [word for word in re.split(r"[\s_]+", text) if word and not SERIAL.search(word)]
    return one_line(" ".join(words), 80)


def transport_of(name: str, said: object) -> str:
    """How a drive is attached, as lsblk says it ("sata", "usb", "nvme"), else as its name tells, else ""."""
    if isinstance(said, str) and said.strip().lower() in TRANSPORTS:
        return said.strip().lower()
    return next((transport for prefix, transport in BY_NAME if re.match(rf"{prefix}(?:[a-z]|\d)", name)), "")
