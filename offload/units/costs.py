"""Prices and powers: "250000 USD", "98.32 USD/h", "2..2.5..3 EUR/h", "700 W", "10.2 kW", and back."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from offload.units.gate import EXAMPLE, read, refusal
from offload.units.kinds import Kind
from offload.units.reading import interval

# Active codes of ISO 4217; a code that is none of them is a slip.
CURRENCIES = tuple(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP
    CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF
    IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD
    MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB
    RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD
    UYU UZS VED VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW
    """.split()
)
_ONE = Fraction(1)
PRICE = Kind(
    "price",
    {f"{code}{per}": ("", _ONE) for code in CURRENCIES for per in ("", "/h")},
    ((1.0, "USD"),),
    ("USD", "USD/h"),
    "250000 USD",
    10**15,
    "a code of three letters (USD, EUR, CNY), of what is rented with /h: 98.32 USD/h",
)
POWER = Kind(
    "power",
    {f"{prefix}W": (prefix, _ONE) for prefix in ("m", "", "k", "M")},
    ((1e-3, "mW"), (1.0, "W"), (1e3, "kW"), (1e6, "MW")),
    ("W", "kW"),
    "700 W",
    10**12,
    "mW, W, kW, MW",
)
_CODE = re.compile(r"(?<![A-Za-z])([A-Z]{3}(?: ?/ ?h)?)(?![A-Za-z/])", re.ASCII)
_SIGNS = {"$": "USD", "\u20ac": "EUR", "\u00a3": "GBP", "\u00a5": "CNY"}


def parse_price_interval(text: object) -> tuple[float, float, float, str]:
    """Low end, value, high end and unit of "250000 USD", "2..3 EUR/h" or "2..2.5..3 EUR/h"; a figure is its own ends.

    The unit is a currency's code, of what is rented with "/h". Between two ends the value is their mean. Raises
    UnitError where it is no price, lacks its code, or holds two units.
    """
    for sign, code in _SIGNS.items():
        if isinstance(text, str) and sign in text:
            number = re.sub(r"[^\d.]", "", text.replace(",", "").partition("/")[0]) or "250000"
            rented = "/h" if re.search(r"/ ?h", text) else ""
            wrong = "names its currency by a sign that several countries use; write its code"
            raise refusal(text, wrong, f"{number} {code}{rented}", say=EXAMPLE)
    units = {re.sub(" ", "", unit) for unit in _CODE.findall(text)} if isinstance(text, str) else set()
    if len(units) > 1:
        raise refusal(text, f"holds two units, {' and '.join(sorted(units))}; a price has one", PRICE.example,
                      say=EXAMPLE)  # fmt: skip
    low, value, high = interval(text, _price, _price, PRICE)
    return low, value, high, units.pop()


def _price(text: object) -> float:
    return float(read(text, PRICE))


def parse_power_interval(text: object) -> tuple[float, float, float]:
    """Low end, value and high end of "700 W", "10.2 kW" or "300..450..600 W"; a figure is its own ends. [W]

    Between two ends the value is their mean. Raises UnitError where an end is no power or the ends are out of order.
    """
    return interval(text, _power, _power, POWER)


def _power(text: object) -> float:
    return float(read(text, POWER))


def format_cost(value: float, unit: str) -> str:
    """A price or a power in full: (250000.0, "USD") -> "250,000 USD", (98.32, "USD/h") -> "98.32 USD/h"."""
    return f"{value:,.15g} {unit}"


def plain_number(value: float) -> str:
    """A number in full, without an exponent, that reads back as the same."""
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
