// Runs the programs that Python wrote down: sums, quotients, maxima, and calls of functions that are made from Python's
// own source (CALLED). There is no formula of a step here.

const ARITY = { neg: 1, pick: 4, pick_ge: 4 };

function decoded(program, operations) {
  const names = operations, code = program.code, nodes = [];
  let at = 0, here = program.inputs;
  while (at < code.length) {
    const name = names[code[at]], operands = [];
    const call = name === "call" ? program.calls[code[at += 1]] : null;
    const count = call ? call.operands : ARITY[name] || 2;
    for (let k = 1; k <= count; k += 1) {
      const one = code[at + k];
      operands.push(one > 0 ? here - one : one);  // a value's place, or -1 - that of a plain number
    }
    nodes.push([name, operands, call]);
    at += 1 + count;
    here += 1;
  }
  return { inputs: program.inputs, nodes: nodes, outputs: program.outputs, guards: program.guards };
}

const KEPT = 4000;  // results of a call that are kept: a curve over the rate that moves is the same in each frame

// What a call gives; null where it would have to be worked out later than `until` (of performance.now()).
function resultOf(call, numbers, until) {
  const kept = call.kept || (call.kept = new Map()), key = numbers.join();
  if (kept.has(key)) return kept.get(key);
  if (performance.now() > until) return null;
  const found = CALLED[call.function](...call.fixed, numbers);
  if (kept.size >= KEPT) kept.delete(kept.keys().next().value);
  kept.set(key, found);
  return found;
}

// The values of a program at some rates; null where a call of it is not worked out by then.
function valuesOf(program, plain, factors, until = Infinity) {
  const values = new Float64Array(program.inputs + program.nodes.length);
  for (let k = 0; k < program.inputs; k += 1) values[k] = factors[k];
  const of = (one) => (one < 0 ? plain[-1 - one] : values[one]);
  let here = program.inputs;
  for (const [name, at, call] of program.nodes) {
    const a = of(at[0]), b = at.length > 1 ? of(at[1]) : 0;
    let made;
    if (name === "add") made = a + b;
    else if (name === "sub") made = a - b;
    else if (name === "mul") made = a * b;
    else if (name === "truediv") made = a / b;
    else if (name === "max") made = b > a ? b : a;
    else if (name === "pick") made = a > b ? of(at[2]) : of(at[3]);
    else if (name === "pick_ge") made = a >= b ? of(at[2]) : of(at[3]);
    else if (name === "call") made = resultOf(call, at.map(of), until);
    else made = -a;
    if (made === null) return null;
    values[here] = made;
    here += 1;
  }
  return values;
}

function outputsOf(program, plain, values) {
  const found = {};
  for (const [name, at] of program.outputs) found[name] = at < 0 ? plain[-1 - at] : values[at];
  return found;
}

// Whether all comparisons come out as they did for Python; where one does not, the program says nothing.
function holds(program, plain, values, comparisons) {
  const of = (one) => (one < 0 ? plain[-1 - one] : values[one]);
  return program.guards.every(([name, one, other, outcome]) => {
    const a = of(one), b = of(other);
    const came = { ne: a !== b, eq: a === b, lt: a < b, le: a <= b, gt: a > b, ge: a >= b }[comparisons[name]];
    return came === outcome;
  });
}

// By factor, the share of an output that is spent at its rate: by how many per cent it falls for one per cent more. Of
// an output that calls nothing.
function sharesOf(program, plain, values, output) {
  const weight = new Float64Array(values.length), place = program.outputs.find(([name]) => name === output)[1];
  if (place < 0 || !(values[place] > 0)) return new Array(program.inputs).fill(0);
  const of = (one) => (one < 0 ? plain[-1 - one] : values[one]);
  const add = (one, much) => { if (one >= 0) weight[one] += much; };
  weight[place] = 1;
  for (let k = program.nodes.length - 1; k >= 0; k -= 1) {
    const much = weight[program.inputs + k];
    if (much === 0) continue;
    const [name, at] = program.nodes[k], a = of(at[0]), b = at.length > 1 ? of(at[1]) : 0;
    if (name === "add") { add(at[0], much); add(at[1], much); }
    else if (name === "sub") { add(at[0], much); add(at[1], -much); }
    else if (name === "mul") { add(at[0], much * b); add(at[1], much * a); }
    else if (name === "truediv") { add(at[0], much / b); add(at[1], -much * a / (b * b)); }
    else if (name === "max") add(b > a ? at[1] : at[0], much);
    else if (name === "pick") add(a > b ? at[2] : at[3], much);
    else if (name === "pick_ge") add(a >= b ? at[2] : at[3], much);
    else if (name === "call") throw new TypeError("no share of a call is known");
    else add(at[0], -much);
  }
  const found = [];
  for (let k = 0; k < program.inputs; k += 1) found.push(-weight[k] * values[k] / values[place]);
  return found;
}
