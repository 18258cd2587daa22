"""GPUs by their PCI numbers, for outputs that name them by nothing else: those of data centres and the common cards.

Source: the public list of PCI ids, https://pci-ids.ucw.cz/, version 2026.05.24 (found: github.com/pciutils/pciids); the
names are those of the list in short. A number that stands for several models names them all, with "or" between them.
"""

from __future__ import annotations

import re

SOURCE = "the public list of PCI ids, pci-ids.ucw.cz, 2026.05.24"
NVIDIA, AMD = "10de", "1002"
MODELS = {
    NVIDIA: {
        "102d": "Tesla K80", "15f7": "Tesla P100 PCIe 12GB", "15f8": "Tesla P100 PCIe 16GB",
        "15f9": "Tesla P100 SXM2 16GB", "1bb3": "Tesla P4", "1db1": "Tesla V100 SXM2 16GB",
        "1db3": "Tesla V100 FHHL 16GB", "1db4": "Tesla V100 PCIe 16GB", "1db5": "Tesla V100 SXM2 32GB",
        "1db6": "Tesla V100 PCIe 32GB", "1db8": "Tesla V100 SXM3 32GB", "1df5": "Tesla V100 SXM2 16GB",
        "1df6": "Tesla V100S PCIe 32GB", "1e02": "TITAN RTX", "1e04": "GeForce RTX 2080 Ti",
        "1e07": "GeForce RTX 2080 Ti", "1e30": "Quadro RTX 6000 or 8000", "1eb8": "Tesla T4",
        "20b0": "A100 SXM4 40GB", "20b1": "A100 PCIe 40GB", "20b2": "A100 SXM4 80GB", "20b3": "A100 SXM 64GB",
        "20b5": "A100 PCIe 80GB", "20b7": "A30 PCIe", "20bd": "A800 SXM4 40GB", "20f1": "A100 PCIe 40GB",
        "20f3": "A800 SXM4 80GB", "20f5": "A800 PCIe 80GB", "20f6": "A800 PCIe 40GB",
        "2203": "GeForce RTX 3090 Ti", "2204": "GeForce RTX 3090", "2206": "GeForce RTX 3080",
        "2208": "GeForce RTX 3080 Ti", "2230": "RTX A6000", "2231": "RTX A5000", "2232": "RTX A4500",
        "2233": "RTX A5500", "2235": "A40", "2236": "A10", "2237": "A10G", "2321": "H100L 94GB",
        "2322": "H800 PCIe", "2324": "H800", "2329": "H20", "232c": "H20 HBM3e", "2330": "H100 SXM5 80GB",
        "2331": "H100 PCIe", "2335": "H200 SXM 141GB", "2337": "H100 SXM5 64GB", "2338": "H100 SXM5 96GB",
        "2339": "H100 SXM5 94GB", "233b": "H200 NVL", "233d": "H100 96GB", "2342": "GH200 120GB or 480GB",
        "2348": "GH200 144G HBM3e", "2484": "GeForce RTX 3070", "2504": "GeForce RTX 3060", "24b0": "RTX A4000",
        "25b6": "A2 or A16", "2684": "GeForce RTX 4090", "2685": "GeForce RTX 4090 D",
        "26b1": "RTX 6000 Ada Generation", "26b2": "RTX 5000 Ada Generation", "26b5": "L40", "26b9": "L40S",
        "2702": "GeForce RTX 4080 SUPER", "2704": "GeForce RTX 4080", "2705": "GeForce RTX 4070 Ti SUPER",
        "2782": "GeForce RTX 4070 Ti", "2783": "GeForce RTX 4070 SUPER", "2786": "GeForce RTX 4070",
        "2803": "GeForce RTX 4060 Ti", "2805": "GeForce RTX 4060 Ti 16GB", "27b8": "L4", "27b6": "L2", "26ba": "L20",
        "2901": "B200", "2909": "HGX B200 168GB", "2941": "HGX GB200", "29bc": "B100", "3182": "B300 SXM6 AC",
        "31c2": "GB300", "31c3": "GB300", "2b85": "GeForce RTX 5090", "2b87": "GeForce RTX 5090 D",
        "2bb1": "RTX PRO 6000 Blackwell Workstation Edition",
        "2bb4": "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "2bb5": "RTX PRO 6000 Blackwell Server Edition", "2c02": "GeForce RTX 5080", "2c05": "GeForce RTX 5070 Ti",
        "2f04": "GeForce RTX 5070", "2d04": "GeForce RTX 5060 Ti", "2e12": "GB10",
    },
    AMD: {
        "66a1": "Radeon Pro VII or Instinct MI50 32GB", "66af": "Radeon VII", "6860": "Instinct MI25",
        "6863": "Radeon Vega Frontier Edition", "687f": "Radeon RX Vega 56 or 64", "738c": "Instinct MI100",
        "738e": "Instinct MI100", "7408": "Instinct MI250X", "740c": "Instinct MI250X or MI250",
        "740f": "Instinct MI210", "73a3": "Radeon PRO W6800", "73bf": "Radeon RX 6800 or 6800 XT or 6900 XT",
        "7448": "Radeon Pro W7900", "744c": "Radeon RX 7900 XT or 7900 XTX or 7900 GRE", "745e": "Radeon Pro W7800",
        "747e": "Radeon RX 7700 XT or 7800 XT", "74a0": "Instinct MI300A", "74a1": "Instinct MI300X",
        "74a2": "Instinct MI308X", "74a5": "Instinct MI325X", "74a9": "Instinct MI300X HF",
        "74b5": "Instinct MI300X VF",
        "74b9": "Instinct MI325X VF", "74bd": "Instinct MI300X HF", "7550": "Radeon RX 9070 or 9070 XT or 9070 GRE",
        "7551": "Radeon AI PRO R9700", "75a0": "Instinct MI350X", "75a3": "Instinct MI355X",
    },
}  # fmt: skip
MAKERS = {NVIDIA: "NVIDIA", AMD: "AMD"}
NUMBERS = re.compile(r"PCI id ([0-9a-f]{4}):([0-9a-f]{4})\Z", re.IGNORECASE)
# What lspci prints where its own list is older than the card.
UNNAMED = re.compile(r"(?:(NVIDIA|Advanced Micro Devices|AMD).*\s|)Device ([0-9a-f]{4})\Z", re.IGNORECASE)


def model_of(said: str) -> str | None:
    """The model behind "PCI id 10de:2330" or "NVIDIA Corporation Device 2330": "NVIDIA H100 SXM5 80GB".

    None where it is said in other words, or the numbers are not in the table.
    """
    if match := NUMBERS.match(said.strip()):
        makers = [match[1].lower()]
    elif match := UNNAMED.match(said.strip()):
        makers = [AMD if match[1].lower().startswith("a") else NVIDIA] if match[1] else [NVIDIA, AMD]
    else:
        return None
    found = [(maker, MODELS.get(maker, {}).get(match[2].lower())) for maker in makers]
    named = [f"{MAKERS[maker]} {model}" for maker, model in found if model is not None]
    return named[0] if len(named) == 1 else None
