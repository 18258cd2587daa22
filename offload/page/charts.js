// Small pieces that figures are drawn of: axes, lines, bars, and the reading of one mark after another.

const SVG = "http://www.w3.org/2000/svg";
let patterns = 0;

function svg(name, attributes, ...inner) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) if (value !== null) made.setAttribute(key, value);
  for (const one of inner) made.append(one);
  return made;
}

function html(name, attributes, ...inner) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === false) continue;
    if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  for (const one of inner) if (one !== null) made.append(one);
  return made;
}

function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (x) => x;
  const a = f(low), b = f(high);
  const made = (x) => from + (to - from) * (f(x) - a) / (b - a);
  made.back = (y) => { const x = a + (b - a) * (y - from) / (to - from); return log ? Math.pow(10, x) : x; };
  return made;
}

// Round numbers between two, about so many.
function ticks(low, high, count) {
  const raw = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw) || raw;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-9); k += 1) found.push(k * step);
  return found;
}

function stepTicks(low, high, steps) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const one of steps) {
      const tick = Number(one + "e" + power);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) found.push(tick);
    }
  }
  return found;
}

function logTicks(low, high, most) {
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = stepTicks(low, high, steps);
    if (found.length <= most || steps.length === 1) return found;
  }
  return [];
}

// Ticks of times, round in the unit in which each is written: seconds up to 1000, then minutes, then hours.
function timeTicks(low, high, most) {
  const spans = [[1, 0, 1000], [60, 1000 / 60, 1000], [3600, 1000 / 60, Infinity]];
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = spans.flatMap(([worth, from, to]) => {
      const start = Math.max(low / worth, from), end = Math.min(high / worth, to);
      return start < end ? stepTicks(start, end, steps).filter((one) => one < to).map((one) => one * worth) : [];
    });
    if (found.length <= most || steps.length === 1) return found;
  }
  return [];
}

function isNumber(text) { return text === "-" || /^(>= |<)?\d/.test(text); }

function label(x, y, text, attributes) {
  return svg("text", Object.assign({ x: x, y: y }, attributes), text);
}

// Diagonal lines that say "not possible", also where colours are not seen.
function hatching() {
  patterns += 1;
  const name = "hatch" + patterns;
  const lines = svg("pattern", { id: name, width: 8, height: 8, patternUnits: "userSpaceOnUse",
                                 patternTransform: "rotate(45)" },
    svg("rect", { width: 8, height: 8, class: "hatch-ground" }),
    svg("line", { x1: 0, y1: 0, x2: 0, y2: 8, class: "hatch-line" }));
  return [svg("defs", {}, lines), "url(#" + name + ")"];
}

function pathOf(points) {
  return points.map(([x, y], k) => (k ? "L" : "M") + x.toFixed(2) + " " + y.toFixed(2)).join("");
}

// A figure: its finding as heading, the drawing, what is read at a mark, and its numbers as a table.
class Figure {
  constructor(name, draw, extra) {
    this.draw = draw;
    this.heading = html("figcaption", { id: name + "-title" });
    this.extra = extra || null;
    this.stage = html("div", { class: "stage", tabindex: "0", role: "group", "aria-labelledby": name + "-title",
                               "aria-describedby": name + "-read", id: name });
    this.read = html("p", { class: "read", id: name + "-read", role: "status" });
    this.head = html("tr");
    this.rows = html("tbody");
    const table = html("table", {}, html("thead", {}, this.head), this.rows);
    this.numbers = html("details", {}, html("summary", {}, "Its numbers"), html("div", { class: "wide" }, table));
    this.root = html("figure", { class: "live" }, this.heading, this.extra, this.stage, this.read, this.numbers);
    this.marks = [];
    this.at = -1;
    this.hint = "Point at it, or use the arrow keys, to read it.";
    this.stage.addEventListener("pointermove", (event) => this.point(event));
    this.stage.addEventListener("pointerleave", () => this.choose(-1));
    this.stage.addEventListener("blur", () => this.choose(-1));
    this.stage.addEventListener("keydown", (event) => this.key(event));
  }

  // Draw anew: `draw` returns {svg, title, marks: [{x, y, text}], head: [...], rows: [[...]]}.
  render(state) {
    const width = Math.max(260, Math.floor(this.stage.clientWidth || 600));
    const made = this.draw(state, width);
    this.heading.textContent = made.title;
    this.cursor = svg("circle", { r: 5, class: "cursor", visibility: "hidden" });
    made.svg.setAttribute("aria-hidden", "true");
    made.svg.append(this.cursor);
    this.stage.replaceChildren(made.svg);
    this.marks = made.marks;
    const right = (k) => k > 0 && made.rows.every((row) => isNumber(row[k]));
    this.head.replaceChildren(...made.head.map((one, k) => html("th", { scope: "col", class: right(k) ? "number" : null }, one)));
    this.rows.replaceChildren(...made.rows.map((row) => html("tr", {}, ...row.map((one, k) =>
      k ? html("td", { class: isNumber(one) ? "number" : null }, one)
        : html("th", { scope: "row", class: isNumber(one) ? "figure" : null }, one)))));
    this.choose(this.at < this.marks.length ? this.at : -1);
  }

  choose(place) {
    this.at = place;
    const mark = place < 0 ? null : this.marks[place];
    this.read.textContent = mark ? mark.text : this.hint;
    if (mark) {
      this.cursor.setAttribute("cx", mark.x);
      this.cursor.setAttribute("cy", mark.y);
    }
    if (this.cursor) this.cursor.setAttribute("visibility", mark ? "visible" : "hidden");
  }

  point(event) {
    const box = this.stage.firstChild.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = Infinity;
    this.marks.forEach((mark, k) => {
      const far = Math.hypot(mark.x - x, mark.lane ? (mark.y - y) * 3 : (mark.y - y));
      if (far < least) { least = far; best = k; }
    });
    if (best !== this.at) this.choose(best);
  }

  key(event) {
    const last = this.marks.length - 1;
    const next = { ArrowRight: this.at + 1, ArrowDown: this.at + 1, ArrowLeft: this.at - 1, ArrowUp: this.at - 1,
                   Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.choose(-1);
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this.choose(Math.min(last, Math.max(0, next)));
  }
}
