// What is known of one row: its numbers, its histogram, its twins beside it, before and after side by side.

// Fields that stand elsewhere on the page, or (`spelling`) are keys for programs and no pattern.
const ELSEWHERE = new Set(["a", "b", "before", "after", "spelling"]);

function details(row, choose) {
  const param = row.param ?? row;
  const cards = [param, ...(param.twins ?? [])];
  const panel = element("div", {}, element("h2", {}, isolated(row.path)));
  if (row.of.before !== undefined || row.of.after !== undefined) panel.append(sides("before", row.of.before, "after", row.of.after));
  if (row.of.a !== undefined && row.of.b !== undefined && row.of.relative === undefined) panel.append(sides("a", row.of.a, "b", row.of.b));
  if (cards.length > 1) {
    panel.append(element("div", { class: "cards" }, ...cards.map((one) => card(one, one === row, choose))));
    panel.append(facts(row));
  } else {
    if (row.of.statistics?.histogram) panel.append(histogram(row.of.statistics) ?? "");
    panel.append(facts(row));
  }
  return panel;
}

function sides(one, before, other, after) {
  const side = (title, text) => element("div", {}, element("h3", {}, title), element("p", {}, isolated(text ?? "—")));
  return element("div", { class: "sides" }, side(one, before), side(other, after));
}

// A param or a twin of it, small, so that they stand beside each other.
function card(row, isChosen, choose) {
  const button = element("button", { type: "button", "aria-pressed": String(isChosen) }, isolated(row.param ? row.label || row.path : "param"));
  button.addEventListener("click", () => choose(row));
  const made = element("div", { class: "card" }, button);
  const found = row.of.statistics;
  if (found) {
    made.append(histogram(found, 140, 44) ?? "");
    made.append(element("p", { class: found.non_finite ? "bad" : "" }, `mean ${numberText(found.mean)}, std ${numberText(found.std)}${found.non_finite ? `, ${countText(found.non_finite)} not finite` : ""}`));
  } else {
    made.append(element("p", { class: "faint" }, isolated(row.of.policy ?? row.of.after ?? row.of.type_text ?? "")));
  }
  return made;
}

// Every field of the row's part of the document.
function facts(row) {
  const list = element("dl", {});
  const add = (name, value) => {
    const text = finite(value) ? (Number.isInteger(value) ? countText(value) : numberText(value)) : String(value);
    list.append(element("dt", {}, printable(name.replaceAll("_", " "))), element("dd", {}, isolated(text)));
  };
  for (const [name, value] of Object.entries(row.of)) {
    if (value === null || value === "" || ELSEWHERE.has(name)) continue;
    if (Array.isArray(value)) { if (value.length) add(name, value.every(finite) ? `[${value.join(",")}]` : value.map((one) => (typeof one === "object" ? JSON.stringify(one) : one)).join(", ")); }
    else if (typeof value === "object") for (const [inner, one] of Object.entries(value)) { if (inner !== "histogram" && one !== null) add(name === "statistics" ? inner : `${name} ${inner}`, one); }
    else add(name, value);
  }
  return list;
}
