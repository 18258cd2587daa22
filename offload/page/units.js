// Figures as Python prints them: decimal units, three or four digits.

const LADDERS = {
  s: [[1e-9, "ns"], [1e-6, "us"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"]],
  B: ladder("B"), "B/s": ladder("B/s"), FLOP: ladder("FLOP"), "FLOP/s": ladder("FLOP/s"),
};

function ladder(base) {
  return ["", "k", "M", "G", "T", "P", "E"].map((prefix, power) => [Math.pow(1000, power), prefix + base]);
}

// So many digits, ties to even as Python rounds them: [digits as text, power of ten].
function rounded(value, digits) {
  const full = value.toExponential(60), [mantissa, power] = full.split("e");
  const figures = mantissa.replace(".", "");
  const tail = figures.slice(digits);
  if (/^50*$/.test(tail) && Number(figures[digits - 1]) % 2 === 0) return [figures.slice(0, digits), Number(power)];
  const [near, at] = value.toExponential(digits - 1).split("e");
  return [near.replace(".", ""), Number(at)];
}

function plainText(figures, power) {
  let text;
  if (power < 0) text = "0." + "0".repeat(-power - 1) + figures;
  else if (figures.length <= power + 1) text = figures + "0".repeat(power + 1 - figures.length);
  else text = figures.slice(0, power + 1) + "." + figures.slice(power + 1);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

function format(value, unit, digits) {
  const rungs = LADDERS[unit], count = digits || 3;
  if (value === 0) return "0 " + unit;
  let figures, power, name;
  for (const [worth, rung] of rungs) {
    [figures, power] = rounded(Math.abs(value) / worth, count);
    name = rung;
    if (power < 3) break;
  }
  const plain = power > -4 && power < 6;
  const text = plain ? plainText(figures, power) : plainText(figures, 0) + "e" + power;
  return (value < 0 ? "-" : "") + text + " " + name;
}

function seconds(value) { return value > 0 ? format(value, "s") : "-"; }

// A plain number: three digits, whole above a thousand.
function number(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  if (Math.abs(value) >= 1000) return String(Math.round(value));
  if (value === 0) return "0";
  const [figures, power] = rounded(Math.abs(value), 3);
  const text = power < -4 ? plainText(figures, 0) + "e" + power : plainText(figures, power);
  return (value < 0 ? "-" : "") + text;
}

// A number of an axis: millions and more in a word, so that it has room.
function short(value) {
  const [worth, name] = [[1e12, " T"], [1e9, " G"], [1e6, " M"]].find(([one]) => value >= one) || [1, ""];
  return number(value / worth) + name;
}

function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1 %";
  return number(100 * share) + " %";
}

function names(list) {
  return list.length < 2 ? list.join("") : list.slice(0, -1).join(", ") + " and " + list[list.length - 1];
}

// A rate as a command takes it, exactly: in a large unit where that gives the number back.
function exactRate(value, unit) {
  for (const [worth, name] of LADDERS[unit].slice().reverse()) {
    if (value >= worth) {
      const text = String(value / worth);
      if (!text.includes("e") && Number(text) * worth === value) return text + " " + name;
    }
  }
  return String(value) + " " + unit;
}
