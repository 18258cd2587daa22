// What is drawn: times, the floor over a rate, loads, the plan's stops, memory. `state` is what page.js works out.

const SPREAD = 10;  // a rate goes from a tenth of what it is to ten times that
const SIDE = 40;    // values on each side of it

function legend(...entries) {
  return html("ul", { class: "legend" }, ...entries.map(([name, text]) => html("li", {},
    svg("svg", { width: 26, height: 12, class: "swatch", "aria-hidden": "true" },
      name === "missing" ? svg("circle", { cx: 13, cy: 6, r: 4, class: "dot hollow" })
        : name.startsWith("part") || name === "nothing" ? svg("rect", { x: 1, y: 1, width: 24, height: 10, class: "box " + name })
        : svg("line", { x1: 1, y1: 6, x2: 25, y2: 6, class: "line " + name })), text)));
}

function times(factor) { return number(factor) + " x"; }

function perSecond(state, value, tokens) { return value > 0 ? number(tokens / value) + " " + state.unit : ""; }

// Expected and serial times: least ones only where much of a step goes by parts without a rate (open).
function least(one, value) { return (one.open && value > 0 ? ">= " : "") + seconds(value); }

function yielded(state, one, value) { return one.open ? "" : perSecond(state, value, one.tokens); }

function rangeOf(one) {
  return one.open ? "at least " + seconds(one.sustained)
    : "between " + seconds(one.sustained) + " and " + seconds(one.serial);
}

function inBrackets(text) { return text ? " (" + text + ")" : ""; }

// Floor, the same at sustained rates, expected and serial, with what they are as the plan has it.
function drawTimes(state, width) {
  const now = state.now, given = state.given, left = 8, right = 8, row = 46, top = 4;
  const entries = [["floor", "Floor", now.floor, given.floor], ["sustained", "Floor at sustained rates", now.sustained,
    given.sustained], ["expected", "Expected", now.expected, given.expected], ["serial", "Serial", now.serial,
    given.serial]];
  const most = Math.max(...entries.flatMap(([, , a, b]) => [a || 0, b || 0])) || 1;
  const x = scale(0, most, left, width - right - (now.open ? 96 : 78), false);
  const height = top + row * entries.length + 8;
  const [definition, hatch] = hatching();
  const drawn = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height }, definition);
  const marks = [], rows = [];
  entries.forEach(([name, title, value, before], k) => {
    const y = top + k * row;
    const sure = name === "floor" || name === "sustained";  // bounds in any case
    const shown = value === null ? rangeOf(now) : sure ? seconds(value) : least(now, value);
    const rate = value === null ? "" : sure ? perSecond(state, value, name === "floor" ? now.most : now.tokens)
      : yielded(state, now, value);
    let text = title + ": " + shown + (rate ? ", " + rate : "");
    if (before && value !== null && before !== value) text += "; " + state.data.given + " " + seconds(before);
    drawn.append(label(left, y + 14, title, { class: "name" }));
    if (value === null) {
      drawn.append(svg("rect", { x: x(now.sustained), y: y + 20, width: Math.max(2, x(now.serial) - x(now.sustained)),
        height: 16, fill: hatch, class: "bar between" }));
      drawn.append(label(x(now.serial) + 6, y + 33, "between", {}));
    } else {
      drawn.append(svg("rect", { x: left, y: y + 20, width: Math.max(1, x(value) - left), height: 16,
        class: "bar " + name }));
      drawn.append(label(x(value) + 6, y + 33, shown, { class: "value" }));
    }
    if (before) drawn.append(svg("line", { x1: x(before), x2: x(before), y1: y + 17, y2: y + 39, class: "given" }));
    marks.push({ x: value === null ? x(now.serial) : x(value), y: y + 28, text: text, lane: true });
    rows.push([title, value === null && !now.open ? seconds(now.sustained) + " to " + seconds(now.serial) : shown,
      rate || "-", before === null ? "-" : sure ? seconds(before) : least(state.given, before)]);
  });
  const finding = now.expected === null ? "Expected is " + rangeOf(now)
    : now.open ? "Expected takes at least " + seconds(now.expected) + ": not all rates are known"
    : now.floor > 0 ? "Expected takes " + times(now.expected / now.floor) + " as long as the floor"
      : "Expected takes " + seconds(now.expected);
  return { svg: drawn, title: finding, marks: marks, rows: rows, head: ["", "now", state.unit, state.data.given] };
}

// Floor, expected and serial over the rate of one dial; below the floor nothing is possible.
function drawOver(state, width) {
  const dial = state.data.dials[state.over], place = state.over, reading = readingOf(place);
  const known = reading.rate !== null, rate = known ? reading.rate : 1;
  const left = 68, right = 62, top = 26, bottom = 44, height = Math.round(Math.min(360, Math.max(240, width * 0.5)));
  const factors = [];
  for (let k = -SIDE; k <= SIDE; k += 1) factors.push(Math.pow(SPREAD, k / SIDE));
  const here = state.factors[place];
  for (const one of [here, ...state.data.along.filter(([k]) => k === place).map(([, factor]) => factor)]) {
    if (!factors.some((other) => Math.abs(one / other - 1) < 1e-12)) factors.push(one);
  }
  factors.forEach((one, k) => { if (Math.abs(one / here - 1) < 1e-12) factors[k] = here; });
  factors.sort((a, b) => a - b);
  const at = (factor) => state.evaluate(state.factors.map((one, k) => (k === place ? factor : one)), state.at, state.until);
  const found = [];
  for (const step of [16, 8, 4, 2, 1]) {  // the whole curve first, then finer: what is left comes with the next redraw
    for (let k = 0; k < factors.length; k += step) {
      if (!found[k]) found[k] = Object.assign({ factor: factors[k], rate: factors[k] * rate }, at(factors[k]));
    }
  }
  const positive = found.flatMap((one) => [one.floor, one.serial, one.sustained]).filter((one) => one > 0);
  const low = Math.min(...positive) / 1.5, high = Math.max(...positive) * 1.3;
  const first = found[0].rate, last = found[found.length - 1].rate;
  const x = scale(first, last, left, width - right, true), y = scale(low, high, height - bottom, top, true);
  const [definition, hatch] = hatching();
  const drawn = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height }, definition);
  const unit = unitOf(dial), shown = (one, digits) => (known ? format(one, unit, digits) : times(one));
  for (const tick of timeTicks(low, high, 8)) {
    drawn.append(svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }));
    drawn.append(label(left - 6, y(tick) + 4, format(tick, "s"), { "text-anchor": "end", class: "tick" }));
  }
  const tokens = state.now.tokens;
  for (const tick of logTicks(tokens / high, tokens / low, 6)) {
    drawn.append(label(width - right + 6, y(tokens / tick) + 4, short(tick), { class: "tick" }));
  }
  for (const tick of logTicks(first, last, Math.floor((width - left - right) / 74))) {
    drawn.append(svg("line", { x1: x(tick), x2: x(tick), y1: top, y2: height - bottom, class: "grid" }));
    drawn.append(label(x(tick), height - bottom + 16, shown(tick), { "text-anchor": "middle", class: "tick" }));
  }
  drawn.append(label(left, 14, "time of a step", { "text-anchor": "start", class: "axis" }));
  drawn.append(label(width - 4, 14, state.unit, { "text-anchor": "end", class: "axis" }));
  drawn.append(label((left + width - right) / 2, height - 8, (known ? reading.grade + " rate of " : "rate of ") +
    dial.name + (known ? "" : ", in what it is now"), { "text-anchor": "middle", class: "axis" }));
  const line = (name, from) => {
    const points = found.filter((one) => one[from] > 0).map((one) => [x(one.rate), y(one[from])]);
    if (points.length) drawn.append(svg("path", { d: pathOf(points), class: "line " + name }));
    return points;
  };
  const floor = found.filter((one) => one.floor > 0).map((one) => [x(one.rate), y(one.floor)]);
  if (floor.length) {
    drawn.append(svg("path", { d: pathOf([...floor, [width - right, height - bottom], [left, height - bottom]]) + "Z",
      fill: hatch, class: "impossible" }));
  }
  line("serial", "serial");
  const unknown = found.some((one) => one.expected === null && !one.pending);
  if (unknown) line("sustained", "sustained");
  const expected = line("expected", "expected");
  if (unknown) {
    for (const [a, b] of expected) drawn.append(svg("circle", { cx: a, cy: b, r: 4, class: "dot expected" }));
  }
  line("floor", "floor");
  drawn.append(svg("line", { x1: x(here * rate), x2: x(here * rate), y1: top, y2: height - bottom,
    class: "present" }));
  if (here !== 1) {
    drawn.append(svg("line", { x1: x(rate), x2: x(rate), y1: top, y2: height - bottom, class: "given" }));
  }
  for (const one of found.filter((each) => each.factor === here)) {
    if (one.expected > 0) drawn.append(svg("circle", { cx: x(one.rate), cy: y(one.expected), r: 4, class: "dot expected" }));
    if (one.floor > 0) drawn.append(svg("circle", { cx: x(one.rate), cy: y(one.floor), r: 4, class: "dot floor" }));
  }
  const told = (one) => (known ? shown(one.rate) + " (" + times(one.factor) + ")" : shown(one.rate)) + ": floor " + seconds(one.floor) +
    (one.expected === null ? ", expected " + rangeOf(one)
      : ", expected " + least(one, one.expected) + ", serial " + least(one, one.serial)) + "; " + one.binds;
  const twice = at(2 * here);
  let title = "A faster " + dial.name + " would not move the floor: " + state.now.binds;
  if (state.now.floor <= 0) title = "No floor is proved: no resource with a known peak rate is loaded";
  else if (twice.floor < state.now.floor * (1 - 1e-9)) {
    title = "Twice the rate of " + dial.name + " would take the floor from " + seconds(state.now.floor) + " to " +
      seconds(twice.floor);
  }
  return {
    svg: drawn, title: title,
    marks: found.filter((one) => one.floor > 0).map((one) => ({ x: x(one.rate), y: y(one.floor), text: told(one) })),
    head: ["rate", "floor", "expected", "serial", "what binds the floor"],
    rows: found.filter((one, k) => k % 10 === 0 || one.factor === here).map((one) => [shown(one.rate, 4),
      seconds(one.floor), one.expected === null ? seconds(one.sustained) + " to " + seconds(one.serial) :
        seconds(one.expected), seconds(one.serial), one.binds]),
  };
}

// How long each resource is busy in a step, at its peak and at what it sustains.
function drawLoads(state, width) {
  const now = state.now, left = 8, row = 50, top = 4;
  const entries = [];
  for (const dial of state.data.dials) {
    const name = dial.names.find((one) => one in now.busy);
    if (name === undefined || !(now.busy[name] > 0)) continue;
    entries.push({ title: dial.name, unit: dial.unit, load: state.point.loads[name], peak: now.peak[name],
                   busy: now.busy[name], binds: dial.names.some((one) => now.binding.includes(one)) });
  }
  for (const [name, busy] of Object.entries(now.busy)) {  // given times have no rate to move
    if (state.data.resources[name] === "s" && busy > 0) {
      entries.push({ title: name, unit: "s", load: state.point.loads[name], peak: now.peak[name], busy: busy,
                     binds: now.binding.includes(name) });
    }
  }
  entries.sort((a, b) => b.busy - a.busy);
  const reach = now.expected === null ? now.sustained : now.expected;
  const most = Math.max(reach, ...entries.map((one) => Math.max(one.busy, one.peak || 0))) || 1;
  const x = scale(0, most, left, width - 84, false), height = top + row * entries.length + 6;
  const drawn = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height });
  const marks = [], rows = [];
  drawn.append(svg("line", { x1: x(reach), x2: x(reach), y1: top, y2: height - 6, class: "present" }));
  entries.forEach((one, k) => {
    const y = top + k * row;
    const amount = format(one.load, one.unit, 4);
    drawn.append(label(left, y + 14, one.title + (one.binds ? "  binds the floor" : ""), { class: one.binds ? "name strong" : "name" }));
    drawn.append(svg("rect", { x: left, y: y + 20, width: Math.max(1, x(one.busy) - left), height: 9, class: "bar busy" }));
    if (one.peak > 0) {
      drawn.append(svg("rect", { x: left, y: y + 31, width: Math.max(1, x(one.peak) - left), height: 9, class: "bar floor" }));
    }
    const end = x(Math.max(one.busy, one.peak || 0)) + 6;  // the line of the step goes through no number
    const at = end <= x(reach) + 2 && x(reach) < end + 8 * seconds(one.busy).length ? x(reach) + 6 : end;
    drawn.append(label(at, y + 34, seconds(one.busy), { class: "value" }));
    const share = percent(one.busy / reach);
    marks.push({ x: x(one.busy), y: y + 25, lane: true, text: one.title + ": " + amount + " a step; " +
      seconds(one.busy) + " at sustained rates (" + share + " of the step), " +
      (one.peak > 0 ? seconds(one.peak) + " at peak" : "its peak is not known") + (one.binds ? "; binds the floor" : "") });
    rows.push([one.title, amount, one.peak > 0 ? seconds(one.peak) : "-", seconds(one.busy), share]);
  });
  const first = entries[0];
  return { svg: drawn, marks: marks, rows: rows, head: ["resource", "load", "at peak", "at sustained rates", "share of the step"],
    title: !first ? "Nothing is loaded" : first.title + " is busy for " + (now.open
      ? seconds(first.busy) + " of the step, whose length is open" : percent(first.busy / reach) + " of the step") };
}

// What is told of each stop of an axis, at the rates of now.
function stopsOf(state, axis) {
  const one = state.data.axes[axis];
  const found = one.shown.map((shown, k) => Object.assign({ shown: shown, k: k },
    state.evaluate(state.factors, state.at.map((at, j) => (j === axis ? k : at)), state.until)));
  for (const each of found) {
    each.between = each.expected !== null ? least(each, each.expected) : each.open ? rangeOf(each)
      : seconds(each.sustained) + " to " + seconds(each.serial);
    each.text = one.label + " " + each.shown + ": " + (each.wrong ? each.wrong : "floor " + seconds(each.floor) +
      inBrackets(perSecond(state, each.floor, each.most)) + ", expected " + (each.expected === null ? rangeOf(each)
      : least(each, each.expected) + inBrackets(yielded(state, each, each.expected))) +
      (each.lacking ? "; does not fit: " + each.lacking : ""));
  }
  return found;
}

// The finding of an axis: its best stop that fits.
function bestOf(state, one, found) {
  const layers = one.name.startsWith("placement.weights") || one.name === "gpu-layers";
  const good = found.filter((each) => !each.wrong && !each.lacking && each.floor > 0);
  const best = good.sort((a, b) => b.most / b.floor - a.most / a.floor)[0];
  if (!best) return one.label + ": no stop fits";
  const where = layers && one.numbers !== null ? " with " + best.shown + " " + one.label.toLowerCase()
    : " with " + one.label.replace(/ \(.*/, "").toLowerCase() + " " + best.shown;
  return "At most " + perSecond(state, best.floor, best.most) + where + ", the best stop that fits";
}

function tableOf(one, found) {
  return {
    head: [one.label, "floor", "expected", "serial", "fits"],
    rows: found.map((each) => (each.wrong ? [each.shown, "-", "-", "-", each.wrong]
      : [each.shown, seconds(each.floor), each.between, least(each, each.serial), each.lacking ? "no: " + each.lacking : "yes"])),
  };
}

// Times (of layers, whose times add) or tokens per second at each stop of one axis.
function drawStops(state, width, axis) {
  const one = state.data.axes[axis], here = state.at[axis], found = stopsOf(state, axis);
  const layers = one.name.startsWith("placement.weights") || one.name === "gpu-layers";
  const value = (each, from, tokens) => (each.wrong || !(each[from] > 0) || (each.open && from !== "floor") ? null
    : layers ? each[from] : each[tokens] / each[from]);
  const lines = [["floor", "floor", "most"], ["expected", "expected", "tokens"], ["serial", "serial", "tokens"]];
  const all = lines.flatMap(([, from, tokens]) => found.map((each) => value(each, from, tokens))).filter((v) => v !== null);
  const left = 62, right = 16, top = 24, bottom = 46, height = 230;
  const high = Math.max(...all, 0) * 1.08 || 1;
  const y = scale(0, high, height - bottom, top, false);
  const values = one.numbers, first = Math.min(...values), last = Math.max(...values);
  const x = scale(first, last > first ? last : first + 1, left + 12, width - right - 12, !layers && first > 0 && last > first);
  const put = (each) => x(values[each.k]);
  const drawn = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height });
  const worth = !layers || high < 1000 ? 1 : high < 60000 ? 60 : 3600;  // in which times are written
  for (const tick of ticks(0, high / worth, 4).map((one) => one * worth)) {
    drawn.append(svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }));
    drawn.append(label(left - 6, y(tick) + 4, layers ? format(tick, "s") : short(tick), { "text-anchor": "end", class: "tick" }));
  }
  const taken = [];
  for (const each of [found[here], ...found]) {  // where names would touch, that of now stays
    const half = each.shown.length * 3.6 + 5, at = Math.min(Math.max(put(each), half), width - half);
    if (taken.some(([other, its]) => Math.abs(other - at) < half + its)) continue;
    taken.push([at, half]);
    drawn.append(label(at, height - bottom + 17, each.shown, { "text-anchor": "middle", class: "tick" }));
  }
  drawn.append(label(8, 14, layers ? "time of a step" : state.unit, { class: "axis" }));
  drawn.append(label((left + width - right) / 2, height - 8, one.label, { "text-anchor": "middle", class: "axis" }));
  drawn.append(svg("line", { x1: put(found[here]), x2: put(found[here]), y1: top, y2: height - bottom, class: "present" }));
  const ordered = found.slice().sort((a, b) => put(a) - put(b));
  for (const [name, from, tokens] of lines) {
    const points = ordered.map((each) => [put(each), value(each, from, tokens), each]).filter(([, v]) => v !== null);
    if (points.length) drawn.append(svg("path", { d: pathOf(points.map(([a, b]) => [a, y(b)])), class: "line " + name }));
    for (const [a, b, each] of points) {
      drawn.append(svg("circle", { cx: a, cy: y(b), r: 4, class: "dot " + name + (each.lacking ? " hollow" : "") }));
    }
  }
  const floor = (each) => value(each, "floor", "most");
  return Object.assign(tableOf(one, found), {
    svg: drawn, title: bestOf(state, one, found),
    marks: found.map((each) => ({ x: put(each), y: floor(each) === null ? height - bottom : y(floor(each)), text: each.text })),
  });
}

// Tokens per second of stops that are no numbers: servers, formats, plans.
function drawChoices(state, width, axis) {
  const one = state.data.axes[axis], found = stopsOf(state, axis), left = 8, row = 48, top = 22;
  const lines = [["floor", "floor", "most"], ["expected", "expected", "tokens"]];
  const value = (each, from, tokens) => (each.wrong || !(each[from] > 0) || (each.open && from !== "floor") ? 0
    : each[tokens] / each[from]);
  const most = Math.max(...found.flatMap((each) => lines.map(([, from, tokens]) => value(each, from, tokens)))) || 1;
  const x = scale(0, most, left, width - 112, false), height = top + row * found.length + 6;
  const [definition, hatch] = hatching();
  const drawn = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height }, definition);
  drawn.append(label(left, 13, state.unit + ": expected (at most)", { class: "axis" }));
  const marks = [];
  found.forEach((each, k) => {
    const y = top + k * row, here = k === state.at[axis], long = Math.floor((width - 20) / 7.5);
    const why = each.wrong ? ": " + each.wrong : each.lacking ? ": does not fit, " + each.lacking : "";
    const text = each.shown + why;
    drawn.append(label(left, y + 14, text.length > long ? text.slice(0, long - 3) + "..." : text,
      { class: here ? "name strong" : "name" }));
    lines.forEach(([name, from, tokens], j) => {
      const its = value(each, from, tokens);
      if (its) drawn.append(svg("rect", { x: left, y: y + 19 + 11 * j, width: Math.max(1, x(its) - left), height: 9,
        class: "bar " + name + (each.lacking ? " faint" : "") }));
    });
    if (!each.wrong && !each.open && each.expected === null && each.sustained > 0) {
      const from = x(each.tokens / each.serial), to = x(each.tokens / each.sustained);
      drawn.append(svg("rect", { x: from, y: y + 30, width: Math.max(2, to - from), height: 9, fill: hatch,
        class: "bar between" }));
    }
    const most = value(each, "floor", "most"), its = value(each, "expected", "tokens");
    const told = (its ? number(its) + " " : "") + (most ? "(" + number(most) + ")" : "");
    if (told) drawn.append(label(x(Math.max(its, most)) + 6, y + 33, told, { class: "value" }));
    marks.push({ x: x(value(each, "floor", "most")), y: y + 28, lane: true, text: each.text });
  });
  return Object.assign(tableOf(one, found), { svg: drawn, title: bestOf(state, one, found), marks: marks });
}

function folded(list) {
  if (list.length === 1) return list[0];
  const match = list.map((one) => one.match(/^(.*?)(\d+)$/));
  const run = match.every((one, k) => one && one[1] === match[0][1] && Number(one[2]) === Number(match[0][2]) + k);
  return run ? list[0] + ".." + match[match.length - 1][2] : list.join(", ");
}

// What lies in each memory, against what it holds.
function drawMemory(state, width) {
  const memories = memoriesOf(state.point), held = state.point.held, groups = new Map(), kinds = [];
  for (const [name, parts] of Object.entries(held)) {
    const key = JSON.stringify([parts, memories[name] || null]);
    groups.set(key, [...(groups.get(key) || []), name]);
    for (const part of Object.keys(parts)) if (!kinds.includes(part)) kinds.push(part);
  }
  const entries = [...groups.values()].map((list) => {
    const parts = held[list[0]], used = Object.values(parts).reduce((a, b) => a + b, 0);
    return { title: folded(list), parts: parts, used: used, size: memories[list[0]] || null };
  });
  const left = 8, row = 50, top = 4, height = top + row * entries.length + 6, wide = width - left - 8;
  const drawn = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height });
  const marks = [], rows = [];
  entries.forEach((one, k) => {
    const y = top + k * row, full = Math.max(one.used, one.size || 0) || 1;
    const x = (bytes) => left + wide * bytes / full;
    const share = one.size ? percent(one.used / one.size) + " of " + format(one.size, "B", 4) : "capacity not known";
    drawn.append(label(left, y + 14, one.title + ": " + format(one.used, "B", 4) + ", " + share, { class: "name" }));
    if (one.size) drawn.append(svg("rect", { x: left, y: y + 20, width: x(one.size) - left, height: 20, class: "capacity" }));
    let from = 0;
    for (const [part, size] of Object.entries(one.parts)) {
      drawn.append(svg("rect", { x: x(from), y: y + 20, width: Math.max(0.5, x(from + size) - x(from)), height: 20,
        class: "box part" + kinds.indexOf(part) % 8 }));
      marks.push({ x: x(from + size / 2), y: y + 30, text: one.title + ", " + part + ": " + format(size, "B", 4) });
      rows.push([one.title, part, format(size, "B", 4)]);
      from += size;
    }
    if (one.size && one.used > one.size) {
      drawn.append(svg("line", { x1: x(one.size), x2: x(one.size), y1: y + 15, y2: y + 45, class: "over" }));
    }
  });
  state.legendOfMemory.replaceChildren(...legend(...kinds.map((part, k) => ["part" + k % 8, part])).childNodes);
  const tight = entries.filter((one) => one.size).sort((a, b) => b.used / b.size - a.used / a.size)[0];
  return { svg: drawn, marks: marks, rows: rows, head: ["memory", "what", "bytes"],
    title: state.now.lacking ? "Does not fit: " + state.now.lacking
      : tight ? tight.title + " is fullest: " + percent(tight.used / tight.size) : "Memory" };
}
