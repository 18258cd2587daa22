// The state of the sliders, what follows from it, and where that is written.

const data = JSON.parse(document.getElementById("live").textContent);
const programs = data.programs.map((one) => decoded(one, data.operations));
const byId = (name) => document.getElementById(name);
const state = {
  data: data, unit: data.unit, factors: data.dials.map(() => 1), at: data.axes.map((one) => one.now),
  over: Math.max(0, data.over), together: false, evaluate: evaluate, legendOfMemory: html("ul", { class: "legend" }),
};
const dialRows = [], axisRows = [], drawings = [];
const FRAME = 20;  // ms of a redraw in which expected times of figures are worked out; those left come with the next

function pointAt(at) {
  let place = 0;
  data.axes.forEach((axis, k) => { place = place * axis.shown.length + at[k]; });
  return data.points[place];
}

// What a dial shows on the server of a point at a factor of 1.
function readingOf(k, at) {
  const server = data.servers[pointAt(at || state.at).server];
  return (server && server.readings[k]) || { rate: null, grade: "", sets: [] };
}

function memoriesOf(point) { return data.servers[point.server].memories; }

function lackingOf(point) {
  return Object.entries(point.lacks).map(([name, size]) => name + " lacks " + format(size, "B")).join(", ");
}

// All figures at some rates and stops: Python's programs run over the amounts that Python embedded. An expected time that
// would be worked out later than `until` is left for the next redraw (pending).
function evaluate(factors, at, until = Infinity) {
  const point = pointAt(at);
  if (point.wrong) return { wrong: point.wrong, binds: "", binding: [], peak: {}, busy: {}, expected: null };
  const [place, plain] = point.figures, program = programs[place], values = valuesOf(program, plain, factors);
  if (!holds(program, plain, values, data.comparisons)) {
    return { wrong: "not known at these rates: ask offload step", binds: "", binding: [], peak: {}, busy: {}, expected: null };
  }
  const found = outputsOf(program, plain, values);
  const made = { floor: found.floor, load: found.load, sustained: found.sustained, serial: found.serial, peak: {},
                 busy: {}, tokens: point.tokens, most: point.most, expected: null, lacking: lackingOf(point), open: point.open };
  for (const [name, value] of Object.entries(found)) {
    if (name.startsWith("peak ")) made.peak[name.slice(5)] = value;
    if (name.startsWith("busy ")) made.busy[name.slice(5)] = value;
  }
  if (point.expected) {
    const [number, own] = point.expected, run = programs[number], its = valuesOf(run, own, factors, until);
    if (its === null) made.pending = state.left = true;
    else if (holds(run, own, its, data.comparisons)) made.expected = outputsOf(run, own, its).overlapped;
  } else {
    made.expected = knownAt(point, factors, at);
  }
  Object.assign(made, bindingOf(made, program, plain, values));
  return made;
}

// An expected time that Python searched for: at the given rates, and at a few others of one of them; else null.
function knownAt(point, factors, at) {
  const moved = factors.flatMap((factor, k) => (factor === 1 ? [] : [k]));
  if (!moved.length) return point.known;
  if (moved.length > 1 || !at.every((one, k) => one === data.axes[k].now)) return null;
  const found = data.along.find(([k, factor]) => k === moved[0] && Math.abs(factors[k] / factor - 1) < 1e-12);
  return found ? found[2] : null;
}

// What binds the floor: of a chain what it spends most on, else all that take as long.
function bindingOf(made, program, plain, values) {
  const shares = sharesOf(program, plain, values, made.floor > 0 ? "floor" : "serial").map((share, k) => [share, k]);
  made.most_spent = shares.reduce((best, one) => (one[0] > best[0] ? one : best), [-1, 0])[1];
  if (!(made.floor > 0)) return { binding: [], binds: "nothing with a known peak rate is loaded", chain: false };
  if (made.floor > made.load * (1 + 1e-12)) {
    const told = shares.filter(([share]) => share >= 0.01).sort((a, b) => b[0] - a[0]);
    const list = told.map(([share, k]) => data.dials[k].name + " (" + percent(share) + ")");
    return { binding: told.slice(0, 1).flatMap(([, k]) => data.dials[k].names), chain: true,
             binds: list.length > 1 ? "times add along a token: " + names(list) : names(list) + " binds along a token" };
  }
  const ties = Object.keys(made.peak).filter((name) => made.peak[name] > 0 && made.peak[name] >= made.load * (1 - 1e-12));
  const dials = data.dials.filter((dial) => dial.names.some((name) => ties.includes(name))).map((dial) => dial.name);
  const list = dials.length ? dials : ties;
  return { binding: ties, chain: false, binds: names(list) + (list.length > 1 ? " bind together" : " binds") };
}

// Where the state is written.

function isGiven() { return state.factors.every((one) => one === 1) && state.at.every((at, k) => at === data.axes[k].now); }

function write() {
  const now = state.now;
  byId("bench").classList.toggle("off", Boolean(now.wrong));
  const show = (name, value, rate, what) => {
    byId(name + "-time").textContent = value;
    byId(name + "-rate").textContent = rate;
    if (what !== undefined) byId(name + "-what").textContent = what;
  };
  for (const name of ["floor", "expected", "serial"]) {
    byId(name + "-time").dataset.seconds = now.wrong || now[name] === null ? "" : String(now[name]);
  }
  byId("bench").dataset.sustained = now.wrong ? "" : String(now.sustained);
  if (now.wrong) {
    for (const name of ["floor", "expected", "serial"]) show(name, "-", "");
    byId("lead").textContent = "There is no step here: " + now.wrong;
    return;
  }
  show("floor", seconds(now.floor), perSecond(state, now.floor, now.most), now.floor > 0
    ? "no schedule on this machine is faster" : "no peak rate that the step needs is known, so nothing is proved");
  show("serial", least(now, now.serial), yielded(state, now, now.serial));
  if (now.expected === null) {
    show("expected", seconds(now.sustained) + " to " + seconds(now.serial), "",
      "between these two: Python searches for it, not at these rates");
  } else {
    show("expected", least(now, now.expected), yielded(state, now, now.expected),
      "with overlap" + (data.policy ? ": " + data.policy : ""));
  }
  byId("lead").textContent = isGiven() ? data.lead : sentence(now);
}

function sentence(now) {
  const told = [];
  const moved = data.dials.map((dial, k) => [dial, state.factors[k]]).filter(([, factor]) => factor !== 1);
  const changed = [
    ...data.axes.map((axis, k) => [axis, k]).filter(([axis, k]) => state.at[k] !== axis.now)
      .map(([axis, k]) => axis.label.toLowerCase() + " " + axis.shown[state.at[k]]),
    ...moved.map(([dial, factor]) => rateText(data.dials.indexOf(dial), factor)),
  ];
  told.push("With " + names(changed) + ":");
  if (now.lacking) told.push("this does not fit (" + now.lacking + "); times are as if it did.");
  if (now.floor > 0) {
    told.push("no schedule makes a step shorter than " + seconds(now.floor) + " (" + perSecond(state, now.floor, now.most) +
      "); " + now.binds + ".");
  }
  if (now.expected !== null) {
    told.push(now.open ? "Expected is at least " + seconds(now.expected) + "." : "Expected is " + seconds(now.expected) +
      " (" + yielded(state, now, now.expected) + "), at the middle of what rates sustain.");
  } else {
    told.push("Expected is " + rangeOf(now) + ".");
  }
  return told.join(" ");
}

function unitOf(dial) { return dial.unit === "FLOP" ? "FLOP/s" : "B/s"; }

function rateText(k, factor) {
  const dial = data.dials[k], rate = readingOf(k).rate;
  return dial.name + (rate === null ? " " + times(factor) + " as fast" : " at " + format(factor * rate, unitOf(dial), 4));
}

function quoted(word) { return /^[\w@%+=:,./-]+$/.test(word) ? word : '"' + word.replace(/(["\\$`])/g, "\\$1") + '"'; }

// The words of `offload step` that answer the same; null where no setting says what a slider did.
function command() {
  if (data.command === null) return null;
  const words = ["offload", "step", ...data.command];
  data.axes.forEach((axis, k) => words.push(...axis.words[state.at[k]]));
  for (const [k, dial] of data.dials.entries()) {
    if (state.factors[k] === 1) continue;
    const sets = readingOf(k).sets;
    if (!sets.length) return null;
    for (const [path, rate] of sets) words.push("--set", path + "=" + exactRate(rate * state.factors[k], unitOf(dial)));
  }
  return words.map(quoted);
}

function hashOf() {
  const told = new URLSearchParams();
  data.axes.forEach((axis, k) => { if (state.at[k] !== axis.now) told.set(axis.name, axis.shown[state.at[k]].replaceAll(",", "")); });
  data.dials.forEach((dial, k) => { if (state.factors[k] !== 1) told.set(dial.name + ".rate", String(state.factors[k])); });
  if (state.over !== Math.max(0, data.over)) told.set("over", data.dials[state.over].name);
  return told.toString();
}

function readHash() {
  const told = new URLSearchParams(location.hash.slice(1));
  data.axes.forEach((axis, k) => {
    const place = axis.shown.findIndex((one) => one.replaceAll(",", "") === told.get(axis.name));
    state.at[k] = place < 0 ? axis.now : place;
  });
  data.dials.forEach((dial, k) => {
    const factor = Number(told.get(dial.name + ".rate"));
    state.factors[k] = factor >= 1e-3 && factor <= 1e3 ? factor : 1;
  });
  const over = data.dials.findIndex((dial) => dial.name === told.get("over"));
  state.over = over < 0 ? Math.max(0, data.over) : over;
}

function update(keepHash, frame = FRAME) {
  state.now = evaluate(state.factors, state.at);
  state.left = false;
  state.until = performance.now() + frame;
  state.point = pointAt(state.at);
  if (data.dials.length && !state.now.wrong && readingOf(state.over).grade === "") state.over = state.now.most_spent;
  write();
  for (const row of dialRows) row();
  for (const row of axisRows) row();
  if (!state.now.wrong) for (const drawing of drawings) drawing.render(state);
  const text = command();
  byId("command").replaceChildren(...(text === null
    ? ["No setting of the command line does the same as these sliders."]
    : text.flatMap((word) => [html("span", {}, word), " "])));
  const hash = hashOf();
  byId("link").setAttribute("href", "#" + hash);
  byId("reset").disabled = isGiven();
  byId("copy").textContent = "Copy the link";
  if (!keepHash) keep(hash);
  if (state.left) later(true);
}

// The address keeps the state; within a frame of another page it may not.
function keep(hash) {
  try {
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
  } catch (error) {
    if (error.name !== "SecurityError") throw error;
  }
}

let waiting = false, keeping = true;
function later(keepHash = false) {
  keeping = keeping && keepHash;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    const kept = keeping;
    waiting = false;
    keeping = true;
    update(kept);
  });
}

// The sliders.

function addAxis(axis, k) {
  const input = html("input", { type: "range", min: "0", max: String(axis.shown.length - 1), step: "1", id: "axis-" + k,
                                name: axis.name });
  const told = html("output", { for: "axis-" + k });
  input.addEventListener("input", () => { state.at[k] = Number(input.value); later(); });
  axisRows.push(() => {
    input.value = String(state.at[k]);
    told.textContent = axis.shown[state.at[k]] + (state.at[k] === axis.now && data.command !== null ? " (the plan's)" : "");
    input.setAttribute("aria-valuetext", told.textContent);
  });
  return html("div", { class: "slider" }, html("label", { for: "axis-" + k }, axis.label), told, input);
}

function addDial(dial, k) {
  const unit = unitOf(dial);
  const rungOf = (rate) => LADDERS[unit].slice().reverse().find(([one]) => rate >= one) || LADDERS[unit][0];
  const input = html("input", { type: "range", min: "-1", max: "1", step: "0.01", id: "dial-" + k, name: dial.name });
  const typed = html("input", { type: "number", min: "0", step: "any", id: "rate-" + k, inputmode: "decimal",
                                "aria-label": dial.name });
  const grade = html("small"), rung = html("span"), row = html("div", { class: "slider" });
  const told = html("span", { class: "factor" });
  const move = (factor) => {
    state.factors[k] = factor;
    if (state.together) for (const other of dial.together) state.factors[other] = factor;
    state.over = k;
    later();
  };
  input.addEventListener("input", () => move(Math.pow(10, Number(input.value))));
  typed.addEventListener("change", () => {
    const rate = readingOf(k).rate, factor = Number(typed.value) * rungOf(rate)[0] / rate;
    if (factor >= 1e-3 && factor <= 1e3) move(factor); else update(false);
  });
  dialRows.push(() => {
    const factor = state.factors[k], now = readingOf(k), known = now.rate !== null;
    input.value = String(Math.log10(factor));
    input.setAttribute("aria-valuetext", (known ? format(factor * now.rate, unit, 4) + ", " : "") + times(factor));
    row.hidden = now.grade === "";
    typed.hidden = !known;
    grade.textContent = known ? " " + now.grade : "";
    if (known) {
      const [worth, name] = rungOf(now.rate);
      rung.textContent = " " + name;
      typed.setAttribute("aria-label", dial.name + ", " + now.grade + " rate in " + name);
      if (document.activeElement !== typed) typed.value = String(Number((factor * now.rate / worth).toPrecision(4)));
    } else {
      rung.textContent = "";
    }
    told.textContent = factor === 1 && known ? "" : times(factor);
  });
  row.append(html("label", { for: "dial-" + k }, dial.name, grade), html("span", { class: "typed" }, typed, rung, told),
    input);
  return row;
}

function build() {
  const form = byId("sliders");
  form.addEventListener("submit", (event) => event.preventDefault());
  if (data.axes.length) form.append(html("fieldset", {}, html("legend", {}, data.what), ...data.axes.map(addAxis)));
  const pairs = data.dials.some((dial) => dial.together.length);
  const both = html("input", { type: "checkbox", id: "together" });
  both.addEventListener("change", () => { state.together = both.checked; });
  form.append(html("fieldset", {}, html("legend", {}, "The rates"), ...data.dials.map(addDial),
    pairs ? html("p", { class: "note" }, both, html("label", { for: "together" },
      " Move together what one better part makes faster")) : null));
  const reset = html("button", { type: "button", id: "reset" }, data.given[0].toUpperCase() + data.given.slice(1));
  reset.addEventListener("click", () => { state.factors.fill(1); state.at = data.axes.map((one) => one.now); update(false); });
  const copy = html("button", { type: "button", id: "copy" }, "Copy the link");
  copy.addEventListener("click", () => {
    const text = location.href.split("#")[0] + byId("link").getAttribute("href");
    const done = () => { copy.textContent = "Copied"; };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});
  });
  form.append(html("p", { class: "buttons" }, reset, copy, html("a", { id: "link", href: "#" }, "Link to this state")));
  form.append(html("div", { hidden: data.command === null }, html("p", { class: "ask" }, "The same from the command line:"),
    html("pre", { tabindex: "0" }, html("code", { id: "command", class: "command" }))));

  const chosen = html("select", { id: "over" }, ...data.dials.map((dial, k) => html("option", { value: String(k) }, dial.name)));
  chosen.addEventListener("change", () => { state.over = Number(chosen.value); later(); });
  dialRows.push(() => {
    [...chosen.options].forEach((one, k) => { one.hidden = readingOf(k).grade === ""; });
    chosen.value = String(state.over);
  });
  const three = [["floor", "Floor"], ["expected", "Expected"], ["serial", "Serial"]];
  drawings.push(new Figure("figure-times", drawTimes, legend(["given", data.given])));
  if (data.dials.length) {
    drawings.push(new Figure("figure-over", drawOver, html("div", { class: "over" },
      html("p", {}, html("label", { for: "over" }, "Over the rate of "), chosen),
      legend(...three, ...(data.formula !== "everywhere"
        ? [["sustained", "Floor at sustained rates, where expected is not known"]] : []), ["nothing", "not possible"]))));
    drawings.push(new Figure("figure-loads", drawLoads, legend(["busy", "at sustained rates"], ["floor wide-line", "at peak"], ["present", "the step"])));
  }
  data.axes.forEach((axis, k) => drawings.push(new Figure("figure-axis-" + k,
    (now, width) => (axis.numbers === null ? drawChoices : drawStops)(now, width, k),
    axis.numbers === null ? legend(["floor wide-line", "Floor"], ["expected wide-line", "Expected"])
      : legend(...three, ["missing", "does not fit"]))));
  drawings.push(new Figure("figure-memory", drawMemory, state.legendOfMemory));
  byId("drawn").append(...drawings.map((one) => one.root));
}

state.given = evaluate(data.dials.map(() => 1), data.axes.map((one) => one.now));
build();
readHash();
update(true);
addEventListener("hashchange", () => { readHash(); update(true); });
let wide = byId("drawn").clientWidth;
addEventListener("resize", () => { if (byId("drawn").clientWidth !== wide) { wide = byId("drawn").clientWidth; later(); } });
let opened = [];
addEventListener("beforeprint", () => {
  if (state.left) update(true, Infinity);
  opened = [...document.querySelectorAll("details:not([open])")].filter((one) => !one.closest("figure"));
  opened.forEach((one) => { one.open = true; });
});
addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });
