// Drawings as SVG: histograms, shares, and how large the values are along a model.

// A histogram in a line of text; a bin that holds anything is seen.
function bars(counts, width = 96, height = 16) {
  const most = Math.max(...counts, 1);
  const step = width / Math.max(counts.length, 1);
  const shapes = counts.map((count, at) => {
    const size = count ? Math.max(1, (height * count) / most) : 0;
    return drawn("rect", { x: at * step, y: height - size, width: Math.max(step - 1, 0.5), height: size });
  });
  return drawn("svg", { class: "bars", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...shapes);
}

// A histogram with its ends, and where zero lies.
function histogram(found, width = 300, height = 96) {
  const { histogram: counts, min, max } = found;
  if (!counts.length) return null;
  const picture = bars(counts, width, height);
  const total = counts.reduce((a, b) => a + b, 0);
  picture.setAttribute("class", "bars large");
  picture.setAttribute("height", height + 18);
  picture.setAttribute("viewBox", `0 0 ${width} ${height + 18}`);
  picture.removeAttribute("aria-hidden");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", min === max ? `${counted(total, "finite value")}, all ${numberText(min)}` : `histogram of ${countText(total)} finite values from ${numberText(min)} to ${numberText(max)}: ${counts.join(", ")}`);
  [...picture.children].forEach((shape, at) => {
    if (min === max) { // all in one bin, the others mean nothing
      if (counts[at]) shape.append(drawn("title", {}, `${counted(counts[at], "value")} of ${numberText(min)}`));
      return;
    }
    const [from, to] = [at, at + 1].map((edge) => numberText(min + ((max - min) * edge) / counts.length));
    shape.append(drawn("title", {}, `${counted(counts[at], "value")} from ${from} to ${to}`));
  });
  picture.append(drawn("line", { x1: 0, x2: width, y1: height, y2: height, class: "axis" }));
  if (min < 0 && max > 0) {
    const zero = (-min / (max - min)) * width;
    picture.append(drawn("line", { x1: zero, x2: zero, y1: 0, y2: height, class: "zero" }));
    if (zero > 60 && zero < width - 60) picture.append(drawn("text", { x: zero, y: height + 14, "text-anchor": "middle" }, "0"));
  }
  picture.append(drawn("text", { x: 0, y: height + 14 }, numberText(min)), drawn("text", { x: width, y: height + 14, "text-anchor": "end" }, numberText(max)));
  return picture;
}

function share(part) {
  const width = part === 0 ? 0 : Math.max(1, 56 * part);
  return drawn("svg", { class: "share", width: 56, height: 8, viewBox: "0 0 56 8", role: "img", "aria-label": `${(100 * part).toFixed(1)}%` },
    drawn("rect", { class: "whole", width: 56, height: 8, rx: 1 }), drawn("rect", { width, height: 8, rx: 1 }));
}

// The block of a model to which a call belongs: up to the first key that ends in a number, else the first key.
function blockOf(name) {
  const keys = name.split(/[/ ]/).map((key) => key.replace(/\[.*/, "")); // `[0]` is an array of a result
  const at = keys.findIndex((key) => /\d$/.test(key));
  return keys.slice(0, at < 0 ? 1 : at + 1).join("/");
}

function blocksOf(names) {
  const found = [];
  names.forEach((name, at) => {
    const block = blockOf(name);
    if (found.length && found.at(-1).name === block) found.at(-1).end = at + 1;
    else found.push({ name: block, start: at, end: at + 1 });
  });
  return found;
}

// Curves over the calls of a model, the scale logarithmic; what is zero lies on the floor, what is not finite on top.
function lineChart(chart, width, choose) {
  const [left, right, top, bottom] = [64, 12, 26, 40];
  const height = 220;
  const [inner, floor] = [width - left - right, height - bottom];
  const values = chart.curves.flatMap((curve) => curve.values).concat(chart.limit ?? []).filter((v) => finite(v) && Number.isFinite(v) && v > 0).map(Math.log10);
  const low = values.length ? Math.floor(Math.min(...values)) : -1;
  const high = Math.max(values.length ? Math.ceil(Math.max(...values)) : 1, low + 1);
  const step = inner / Math.max(chart.names.length, 1);
  const x = (at) => left + step * (at + 0.5);
  const y = (value) => (value > 0 ? floor - ((Math.log10(value) - low) / (high - low)) * (floor - top) : floor);
  const parts = [];
  const decades = Math.max(1, Math.ceil((high - low) / 5));
  for (let power = low; power <= high; power += decades) {
    parts.push(drawn("line", { x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }));
    parts.push(drawn("text", { x: left - 8, y: y(10 ** power) + 4, "text-anchor": "end" }, numberText(10 ** power)));
  }
  parts.push(...axis(blocksOf(chart.names), left, step, top, floor));
  if (chart.limit) parts.push(drawn("line", { x1: left, x2: width - right, y1: y(chart.limit), y2: y(chart.limit), class: "limit" }, drawn("title", {}, `tolerance ${numberText(chart.limit)}`)),
    drawn("text", { x: width - right, y: y(chart.limit) - 4, "text-anchor": "end" }, `tolerance ${numberText(chart.limit)}`));
  chart.curves.forEach((curve, number) => parts.push(...drawCurve(curve, number, x, y, top, floor)));
  const first = chart.first === null || chart.first === undefined ? -1 : chart.names.indexOf(chart.first);
  if (first >= 0) {
    const isLeft = first > chart.names.length / 2;
    parts.push(drawn("line", { x1: x(first), x2: x(first), y1: top - 4, y2: floor, class: "first" }));
    parts.push(drawn("text", { x: x(first) + (isLeft ? -5 : 5), y: top - 8, class: "first", "text-anchor": isLeft ? "end" : "start" }, printable(chart.first)));
  }
  chart.names.forEach((name, at) => {
    const seen = chart.curves.map((curve) => `${curve.title ? `${curve.title} ` : ""}${Number.isNaN(curve.values[at]) ? "not finite" : numberText(curve.values[at])}`).join(", ");
    const hit = drawn("rect", { x: left + step * at, y: top, width: Math.max(step, 1), height: floor - top, class: "hit" }, drawn("title", {}, `${printable(name)}: ${seen}`));
    hit.addEventListener("click", () => choose(name));
    parts.push(hit);
  });
  const label = `${chart.title}; the table below has the numbers`;
  return drawn("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...parts);
}

// The blocks below the axis: their names where these fit, else their numbers, else every second, third, … of them.
function axis(blocks, left, step, top, floor) {
  const parts = [drawn("line", { x1: left, x2: left + step * (blocks.at(-1)?.end ?? 0), y1: floor, y2: floor, class: "axis" })];
  const fit = (text, block) => text.length * 7 + 6 <= step * (block.end - block.start);
  let free = -Infinity;
  blocks.forEach((block, at) => {
    const edge = left + step * block.start;
    if (at) parts.push(drawn("line", { x1: edge, x2: edge, y1: top, y2: floor + 5, class: "grid" }));
    const middle = left + (step * (block.start + block.end)) / 2;
    const number = /\d+$/.exec(block.name)?.[0];
    const text = printable(fit(block.name, block) || number === undefined ? block.name : number);
    const half = text.length * 3.5;
    if (middle - half < free) return;
    parts.push(drawn("text", { x: middle, y: floor + 17, "text-anchor": "middle" }, text, drawn("title", {}, printable(block.name))));
    free = middle + half + 8;
  });
  const stems = [...new Set(blocks.filter((block) => !fit(block.name, block) && /\d$/.test(block.name)).map((block) => block.name.replace(/\d+$/, "")))];
  if (stems.length) parts.push(drawn("text", { x: left, y: floor + 33, class: "stem" }, `numbers: ${stems.map((stem) => `${printable(stem)}N`).join(", ")}`));
  return parts;
}

function drawCurve(curve, number, x, y, top, floor) {
  const parts = [];
  let path = "";
  let isOpen = false;
  curve.values.forEach((value, at) => {
    const isBad = value !== null && !(finite(value) && Number.isFinite(value));
    if (isBad) parts.push(drawn("path", { d: `M${x(at)} ${top}V${floor}`, class: "notfinite" }));
    if (value === null || isBad) { isOpen = false; return; }
    path += `${isOpen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    isOpen = true;
    if (curve.values.length <= 120) parts.push(drawn("circle", { cx: x(at), cy: y(value), r: 2.2, class: `curve${number}` }));
  });
  parts.unshift(drawn("path", { d: path, class: `curve curve${number}` }));
  return parts;
}
