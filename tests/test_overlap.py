"""Overlap of components, forms over max and + as trees and texts, and rooflines."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import FormulaError
from offload.forms import DEEPEST, Max, Sum, Term, parse, substitute, terms_of
from offload.overlap import (
    FORMS,
    binds,
    combine,
    compare_forms,
    copy_in,
    efficiency,
    evaluate,
    intensities,
    limits,
    omega_of,
    rooflines,
)

F = Fraction
times = st.fractions(0, 9, max_denominator=4)
floats = st.floats(0, 1e3, allow_subnormal=False)
shares = st.fractions(0, 1, max_denominator=8)
QUICK = settings(max_examples=50)
NAMES = "abcd"
trees = st.recursive(
    st.sampled_from(NAMES).map(Term),
    lambda parts: st.tuples(st.sampled_from([Sum, Max]), st.lists(parts, min_size=2, max_size=3)).map(
        lambda made: made[0](tuple(made[1]))
    ),
    max_leaves=8,
)
given_times = st.fixed_dictionaries({name: times for name in NAMES})
FIVE = {"comp": 5, "ctog": 4, "gtoc": 1, "ctod": 2, "dtoc": 3}


# Partial overlap.


@given(st.lists(times, min_size=1, max_size=5), shares)
@QUICK
def test_partial_overlap_lies_between_and_is_told_back(components, omega):
    made = combine(components, omega)
    assert (made.longest, made.total) == (max(components), sum(components))
    assert made.seconds == omega * made.longest + (1 - omega) * made.total
    assert combine(components, 0).seconds == made.total and combine(components, 1).seconds == made.longest
    if made.total > made.longest:
        assert omega_of(components, made.seconds) == omega


@given(st.lists(floats, min_size=1, max_size=5), st.floats(0, 1), st.integers(0, 4))
def test_partial_overlap_in_floats_stays_between_and_never_falls(components, omega, place):
    made = combine(components, omega)
    assert made.longest <= made.seconds <= made.total
    slower = list(components)
    slower[place % len(slower)] = math.nextafter(slower[place % len(slower)], math.inf)
    assert combine(slower, omega).seconds >= made.seconds


def test_partial_overlap_of_arrays():
    made = combine([numpy.array([6.0, 1.0]), 4.0, 2], numpy.array([0.75, 0.0]))
    assert made.seconds.tolist() == [7.5, 7.0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: omega_of([6, 4, 2], 5), "5 s is less than the longest component, 6 s"),
        (lambda: omega_of([6, 4, 2], 13), "13 s is more than all components"),
        (lambda: omega_of([6, 0], 6), "only one component"),
        (lambda: omega_of([], 6), "the list is empty"),
        (lambda: combine([1, 2], 1.5), "omega: 1.5 is above 1"),
        (lambda: combine([1, 2], -0.5), "omega: -0.5 is not"),
        (lambda: combine([1, math.nan], 0), r"times\[1\]: nan"),
        (lambda: combine([numpy.array([1.0, math.inf])], 0), "an array of other than finite numbers"),
        (lambda: combine([numpy.array([1.0, -1.0])], 0), "goes down to -1.0"),
        (lambda: combine([1], numpy.array([0.5, 2.0])), "above 1"),
    ],
)
def test_no_overlap_is_told_from_what_makes_no_sense(call, told):
    with pytest.raises(FormulaError, match=told):
        call()


# Trees and texts.


@given(trees)
def test_a_tree_is_read_back_from_its_text(tree):
    assert parse(str(tree)) == tree
    assert parse(str(tree).replace(" ", "")) == tree and parse(f"\t( {tree} )\n") == tree


@given(trees, given_times)
def test_a_form_lies_between_its_largest_term_and_their_sum(tree, values):
    value = evaluate(tree, values)
    low, high = limits(tree, values)
    assert low <= value <= high
    assert low == max(values[name] for name in terms_of(tree))
    assert value == eval(str(tree), {"max": max, **values})  # the text means the same to Python
    assert evaluate(str(tree), {name: time * 3 for name, time in values.items()}) == 3 * value


@given(trees, given_times, st.sampled_from(NAMES))
def test_what_binds_is_what_the_value_grows_with(tree, values, name):
    bind = binds(tree, values)
    assert all(values[one] > 0 for one in bind)
    more = evaluate(tree, values | {name: values[name] + F(1, 100)})
    if name in bind:
        assert more > evaluate(tree, values)
    elif values[name] > 0:
        assert evaluate(tree, values | {name: values[name] * F(10**9 + 1, 10**9)}) == evaluate(tree, values)


@given(trees, st.fixed_dictionaries({name: floats for name in NAMES}), st.sampled_from(NAMES))
def test_no_form_falls_to_the_last_bit_when_a_term_grows(tree, values, name):
    slower = values | {name: math.nextafter(values[name], math.inf)}
    assert evaluate(tree, slower) >= evaluate(tree, values)


def test_forms_of_arrays():
    values = {"a": numpy.array([1.0, 5.0]), "b": 2, "c": numpy.array([1.0, 1.0])}
    assert evaluate("max(a, b) + c", values).tolist() == [3.0, 6.0]


def test_terms_in_their_order_and_replaced():
    tree = parse("max(b + a, sum(a, c), d)")
    assert terms_of(tree) == ("b", "a", "c", "d")
    assert str(tree) == "max(b + a, a + c, d)"
    assert str(substitute("compute + transfer", {"transfer": "max(up, down)"})) == "compute + max(up, down)"
    with pytest.raises(FormulaError, match='"x" is no term of a'):
        substitute("a + b", {"x": "a"})


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("max(a + b, c *d)", 13, r"a \+, a comma or a closing parenthesis is due"),
        ("a +", 3, "ends where a name is due"),
        ("", 0, "ends where a name is due"),
        ("   ", 3, "ends where a name is due"),
        ("a b", 2, r"a \+ or the end is due"),
        ("a - b", 2, r"a \+ or the end is due"),
        ("min(a, b)", 3, '"min" is no function'),
        ("max()", 4, "a name is due"),
        ("max(a,)", 6, "a name is due"),
        ("max(a, b", 8, "a comma or a closing"),
        ("(a + b", 6, "a closing parenthesis is due"),
        ("(a, b)", 2, "a closing parenthesis is due"),
        ("a + 2", 4, "a number is no term"),
        ("2 a", 0, "a number is no term"),
        ("a.b + __import__('os')", 16, '"__import__" is no function'),
        ("a\n+ $", 4, "a name is due"),
        ("(" * (DEEPEST + 2) + "a", DEEPEST + 1, "parentheses within each other"),
        ("(" * 100_000, DEEPEST + 1, "parentheses within each other"),
    ],
)
def test_a_text_that_is_no_form_is_refused_at_its_place(text, column, told):
    with pytest.raises(FormulaError, match=told) as caught:
        parse(text)
    shown, caret = str(caught.value).split("\n")[1:3]
    assert caret == " " * (2 + column) + "^"
    assert shown == "  " + (text.replace("\n", " ") if len(text) < 110 else "(" * 90 + "...")


def test_a_place_far_into_a_text_is_shown_with_what_is_around_it():
    with pytest.raises(FormulaError) as caught:
        parse("a + " * 100 + "* + " + "b + " * 100)
    shown, caret = str(caught.value).split("\n")[1:3]
    assert len(shown) < 110 and shown[caret.index("^")] == "*"


@given(st.text(alphabet="ab max(),+ \n2*", max_size=12))
def test_any_text_is_a_form_or_refused(text):
    try:
        tree = parse(text)
    except FormulaError:
        return
    assert parse(str(tree)) == tree


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: evaluate("max(comp, ctgo)", FIVE), 'no time is given for "ctgo".*Did you mean "ctog"'),
        (lambda: evaluate("a", {"a": -1}), "a: -1 is not"),
        (lambda: evaluate("a", {"a": "1"}), "a: '1' is not"),
        (lambda: evaluate("a", {"a": True}), "a: True is not"),
        (lambda: parse(5), "5 is no text"),
        (lambda: compare_forms({}), "none is given"),
        (lambda: compare_forms({"a": numpy.array([1.0, 2.0])}), "give numbers"),
        (lambda: Max(()), "without parts"),
        (lambda: Sum(()), "without parts"),
        (lambda: combine({1, 2}, 0), "is no list of numbers"),
        (lambda: rooflines([], 1, 1), "none is given"),
        (lambda: rooflines([(1, -1)], 1, 1), r"ops\[0\] bytes: -1"),
        (lambda: rooflines([(1, 1)], 0, 1), "flops: 0 is not a finite number above 0"),
        (lambda: copy_in(1, 1, 1, flops=1, hbm=1, link=0), "link: 0 is not"),
        (lambda: efficiency(0, 1, 1), "intensity: 0 is not"),
        (lambda: intensities(1024, 1, 0, 1), "hidden: 0 is not"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(FormulaError, match=told):
        call()


# Published forms.


def test_flexgen_says_three_things_of_the_same_inputs():
    table = compare_forms(FIVE)
    assert {row.name: (row.seconds, row.binds) for row in table.rows} == {
        "max": (5, ("comp",)),
        "flexgen paper": (5, ("comp",)),
        "flexgen prefill": (7, ("ctog", "dtoc")),
        "flexgen decode": (9, ("comp", "ctog")),
        "sum": (15, ("comp", "ctod", "ctog", "dtoc", "gtoc")),
    }
    assert [row.seconds for row in table.rows] == [5, 5, 7, 9, 15]
    assert {row.name: row.overlap for row in table.rows}["flexgen prefill"] == 0.8
    assert table.missing["zero-infinity"] == ("compute", "transfer")
    assert set(table.missing) == {name for name in FORMS if not name.startswith("flexgen")}


def test_models_are_held_against_each_other_in_the_same_terms():
    zero = substitute(FORMS["zero-infinity"].form, {"compute": "comp", "transfer": "ctog + gtoc"})
    table = compare_forms(FIVE, {**FORMS, "zero": zero, "mine": "max(comp, ctog) + dtoc"})
    assert {row.name: row.seconds for row in table.rows if row.name in ("zero", "mine")} == {"zero": 10, "mine": 8}


@pytest.mark.parametrize("name", FORMS)
def test_every_published_form_has_a_source_and_terms(name):
    one = FORMS[name]
    assert one.source and all(term in one.terms for term in terms_of(one.form) if "_" not in term)
    values = {term: F(place + 1) for place, term in enumerate(terms_of(one.form))}
    low, high = limits(one.form, values)
    assert low <= evaluate(one.form, values) <= high


def test_a_hierarchical_roofline():
    values = {"link": 4, "cpu_flop": 1, "cpu_mem": 6, "gpu_flop": 2, "gpu_mem": 1}
    assert evaluate(FORMS["moe-lightning"].form, values) == 6
    assert binds(FORMS["moe-lightning"].form, values) == ("cpu_mem",)


def test_ties_of_floats_bind_together():
    assert binds("max(a, b)", {"a": 0.1 + 0.2, "b": 0.3}) == ("a", "b")
    assert binds("max(a, b)", {"a": F(1, 10**15) + 1, "b": F(1)}) == ("a",)


# Rooflines.


@given(st.lists(st.tuples(times, times), min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 9))
@QUICK
def test_rooflines_in_their_order(ops, flops, bandwidth):
    made = rooflines(ops, flops, bandwidth)
    assert made.aggregate <= made.serial <= made.no_overlap <= 2 * made.serial
    assert made.per_op == tuple(max(work / flops, traffic / bandwidth) for work, traffic in ops)


def test_copies_out_load_the_memory_too():
    rates = {"flops": F(1), "hbm": F(100), "link": F(10)}
    made = copy_in(0, 100, 30, **rates, copied_out=20)
    assert made.resource_seconds == {"flop": 0, "link": 3, "hbm": F(3, 2), "link_out": 2}
    assert (made.seconds, made.bottleneck, made.ignoring, made.exclusive_port) == (3, ("link",), 3, 4)
    assert copy_in(0, 100, 30, **rates).resource_seconds["hbm"] == F(13, 10)


@given(*[times] * 4, *[st.integers(1, 9)] * 3)
@QUICK
def test_contention_lies_between_ignoring_it_and_an_exclusive_port(work, traffic, into, out, flops, hbm, link):
    made = copy_in(work, traffic, into, flops=flops, hbm=hbm, link=link, copied_out=out)
    assert made.ignoring <= made.seconds
    if link * 2 <= hbm:  # two directions then fit beside each other in the memory
        assert made.seconds <= made.exclusive_port


def test_efficiency_without_and_with_overlap():
    found = intensities(1024, 1, 8192, 1)
    assert (found.params_grads, found.optimizer, found.activations) == (1024, 256, 196608)
    assert efficiency(F(1024), F(70), F(70_000)) == F(128, 253)
    assert efficiency(F(1024), F(70), F(70_000), "max(compute, transfer)") == 1
    assert efficiency(F(500), F(70), F(70_000), FORMS["zero-infinity overlapped"].form) == F(1, 2)
