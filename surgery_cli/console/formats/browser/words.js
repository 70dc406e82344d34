// Numbers, sizes and names as the command line says them.

const finite = (value) => typeof value === "number";

// Four significant digits, as `%.4g`; NaN and infinities come as text and stay what they are.
function numberText(value) {
  if (value === null || value === undefined) return "";
  if (!finite(value)) return String(value);
  if (value === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(Number(value.toExponential(3)))));
  if (exponent < -4 || exponent >= 4) {
    const [digits, power] = value.toExponential(3).split("e");
    const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
    return `${short}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  const text = value.toFixed(Math.max(0, 3 - exponent));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function byteText(count) {
  if (count < 1024) return `${count} B`;
  let value = count;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    value /= 1024;
    if (value < 1023.95) return `${value.toFixed(1)} ${unit}`;
  }
  return `${(value / 1024).toFixed(1)} PiB`;
}

const countText = (count) => count.toLocaleString("en-US");
const counted = (count, one, many = `${one}s`) => `${countText(count)} ${count === 1 ? one : many}`;
const arrayText = (dtype, shape) => `${dtype}[${shape.join(",")}]`;

// For sorting: NaN and infinities stand above all numbers, so that what is bad comes first.
const rank = (value) => (finite(value) ? value : value === null || value === undefined ? -Infinity : Infinity);

// Names come from strangers: what cannot be printed is written as an escape, as everywhere in `surgery`.
function printable(text) {
  return text.replace(/[\p{C}\p{Z}]/gu, (c) => {
    if (c === " ") return c;
    const code = c.codePointAt(0);
    if (code <= 0xff) return `\\x${code.toString(16).padStart(2, "0")}`;
    if (code <= 0xffff) return `\\u${code.toString(16).padStart(4, "0")}`;
    return `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; texts are texts, never markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const isolated = (text, style) => element("bdi", { class: style || null }, printable(text));
