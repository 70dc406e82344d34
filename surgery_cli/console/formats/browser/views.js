// What of a document is a row, and which columns it has: one view for each kind of document.
//
// A view gives `noun`, `columns`, `rows`, and perhaps `charts`, `inOrder` (a list comes first, not a tree) and
// `worrying` (which rows to count in red, in the words of `worry`; `beginsWithWorries`: to show alone at first). A row has `keys` (its place in the tree),
// `path`, `state` (a word to filter by), `bad` (true if it should worry), `of` (its part of the document), and perhaps
// `shown` (its keys as patterns take them), `isRed` (its name too), `isPart` (of the row above, not counted beside it),
// `twinOf` with `label`. A column has `title`, `text` or `draw`, `value` to sort by, and `total` for what stands below.

const VIEWS = {};

// The keys of a path; in a spelling a slash inside a key is %2F.
function keysOf(path, spelling) {
  if (!spelling) return path === "" ? ["."] : path.split("/");
  return spelling.split("/").map((key) => key.replaceAll("%2F", "/").replaceAll("%25", "%"));
}

// Each key as patterns take it: its part of the path, which is one; a slash inside a key may stand in it as it is.
function shownKeys(path, keys) {
  const parts = path.split("/");
  if (path === "" || parts.length === keys.length) return path === "" ? keys : parts;
  let at = 0;
  return keys.map((key) => parts.slice(at, (at += key.split("/").length)).join("/"));
}

function placeOf(path, spelling) {
  const keys = keysOf(path, spelling);
  return { keys, shown: shownKeys(path, keys), path: path || "." };
}

// The places of leaves as a document calls them.
const placesIn = (found) => (path) => placeOf(path, found.spellings?.[path]);

const numbers = (title, value, more = {}) => ({
  title, value, text: (row) => numberText(value(row)), numeric: true, width: 10, ...more,
});
const words = (title, text, width, more = {}) => ({ title, text, value: text, width, ...more });
const has = (rows, column) => rows.some((row) => { const v = column.value(row); return v !== "" && v !== null && v !== undefined; });

VIEWS.Inspection = (found) => {
  const stat = (name) => (row) => row.of.statistics?.[name];
  const rows = found.leaves.map((leaf) => ({
    ...placeOf(leaf.path, leaf.spelling),
    of: leaf,
    isRed: Boolean(leaf.statistics ? leaf.statistics.non_finite : leaf.bad?.length),
    state: leaf.bad?.length ? "bad" : leaf.kind,
    bad: Boolean(leaf.bad?.length),
    twinOf: leaf.twin_of,
    label: leaf.slot,
  }));
  const columns = [
    words("type", (row) => row.of.type_text || arrayText(row.of.dtype, row.of.shape), 22),
    { title: "size", value: (row) => row.of.bytes, text: (row) => byteText(row.of.bytes), total: "sum", totalText: byteText, numeric: true, width: 10 },
    words("what is wrong", (row) => (row.of.bad ?? []).join(", "), 20, { style: (row) => (row.isRed ? "bad" : "doubtful") }),
    { title: "histogram", value: () => null, draw: (row) => (row.of.statistics && row.of.shape.length ? bars(row.of.statistics.histogram) : null), width: 12, shown: rows.some((row) => row.of.statistics) },
    ...["mean", "std", "min", "max", "norm"].map((name) => numbers(name, stat(name))),
    { title: "zeros", value: stat("zeros"), text: (row) => (row.of.statistics ? countText(row.of.statistics.zeros) : ""), numeric: true, width: 10 },
    words("role", roleOf, 24, { style: "faint" }),
  ];
  return {
    noun: ["leaf", "leaves"], rows, columns: columns.filter((c) => c.shown ?? has(rows, c)),
    worrying: (row) => row.bad, worry: (count) => `${countText(count)} bad`,
  };
};

function roleOf(row) {
  const leaf = row.of;
  let text = "";
  if (leaf.twin_of !== undefined && leaf.twin_of !== null) text = `${leaf.slot || "twin"} of ${leaf.twin_of}`;
  else if (leaf.clock) text = leaf.clock === "nothing" ? "clock" : `clock: ${leaf.clock}`;
  if (leaf.value === undefined || leaf.value === null) return text;
  return text ? `${text} = ${leaf.value}` : `= ${leaf.value}`;
}

VIEWS.Difference = (found) => {
  const place = placesIn(found);
  const only = (paths, state, side) =>
    paths.map((path) => ({ ...place(path), state, bad: true, of: { path, what: state, [side]: "there", [side === "a" ? "b" : "a"]: "—" } }));
  const rows = [
    ...found.changed.map((change) => ({ ...place(change.path), state: `${change.what} differ${change.what === "values" ? "" : "s"}`, bad: true, of: change })),
    ...only(found.only_in_a, "only in a", "a"),
    ...only(found.only_in_b, "only in b", "b"),
    ...found.agreeing.map((path) => ({ ...place(path), state: "equal", of: { path } })),
  ];
  const columns = [
    words("", (row) => row.state, 16, { of: "state", style: (row) => (row.bad ? "bad" : "faint") }),
    words("a", (row) => row.of.a ?? "", 22),
    words("b", (row) => row.of.b ?? "", 22),
    { title: "differing", value: (row) => row.of.differing ?? null, text: (row) => (row.of.differing === undefined ? "" : `${countText(row.of.differing)} of ${countText(row.of.size)}`), numeric: true, width: 22 },
    { title: "share", value: (row) => (row.of.size ? row.of.differing / row.of.size : null), draw: (row) => (row.of.size ? share(row.of.differing / row.of.size) : null), width: 10 },
    numbers("largest", (row) => row.of.max_abs, { total: "max" }),
    words("at", (row) => (row.of.where?.length ? `[${row.of.where.join(",")}]` : ""), 12),
    numbers("relative", (row) => row.of.max_rel, { total: "max" }),
  ];
  return {
    noun: ["leaf", "leaves"], rows, columns: columns.filter((c) => has(rows, c)),
    worrying: (row) => row.bad, worry: (count) => `${countText(count)} differ${count === 1 ? "s" : ""}`, beginsWithWorries: true,
  };
};

VIEWS.Preview = (found) => {
  const place = placesIn(found);
  const rows = [
    ...found.leaves.map((leaf) => ({
      ...place(leaf.path), of: leaf, twinOf: leaf.twin_of,
      state: leaf.before === null || leaf.before === undefined ? "new" : leaf.moved && leaf.before === leaf.after && leaf.operations.length === 0 ? "moved" : "edited",
    })),
    ...found.removed.map((path) => ({ ...place(path), of: { path }, state: "removed" })),
  ];
  const origin = (row) => (row.of.from && row.of.from !== row.of.path ? row.of.from : "");
  const columns = [
    words("", (row) => row.state, 10, { of: "state", style: (row) => (row.state === "removed" ? "strong" : "faint") }),
    words("before", (row) => row.of.before ?? (row.state === "removed" ? "there" : "—"), 22, { style: "faint" }),
    words("after", (row) => row.of.after ?? "—", 22, { style: (row) => (row.of.after !== row.of.before ? "strong" : "") }),
    words("by", (row) => (row.of.operations ?? []).join(", "), 24),
    words("optimizer", (row) => row.of.policy ?? "", 12),
    words("from", origin, 30, { style: "faint" }),
  ];
  return { noun: ["leaf", "leaves"], columns: columns.filter((c) => has(rows, c)), rows };
};
VIEWS.Report = VIEWS.Preview;

VIEWS.Verdict = (found) => {
  const place = placesIn(found);
  const known = new Set(found.findings.map((one) => one.path));
  const plain = (paths, state) => paths.filter((path) => !known.has(path)).map((path) => ({ ...place(path), state, of: { path } }));
  const rows = [
    ...found.findings.map((one) => ({ ...place(one.path), state: one.what, bad: true, of: one })),
    ...plain([...found.agreeing, ...found.files_agreeing], "agrees"),
    ...plain(found.not_checked, "not checked"),
  ];
  const columns = [
    words("", (row) => row.state, 20, { of: "state", style: (row) => (row.bad ? "bad" : "faint") }),
    words("here", (row) => row.of.here ?? "", 22),
    words("there", (row) => row.of.there ?? "", 22),
    words("what", (row) => [row.of.detail, row.of.effect, row.of.fix].filter(Boolean).join("; "), 48),
  ];
  return {
    noun: ["leaf or file", "leaves and files"], rows, columns: columns.filter((c) => has(rows, c)),
    worrying: (row) => row.bad, worry: (count) => counted(count, "finding"), beginsWithWorries: true,
  };
};

VIEWS.Checked = (found) => {
  const outcome = (rule) => (rule.holds ? "holds" : rule.severity === "warning" ? "warning" : "broken");
  const rows = found.rules.flatMap((rule) => {
    const state = outcome(rule);
    const place = rule.file && rule.line ? `${rule.file}:${rule.line}` : "";
    const own = { keys: [rule.id], path: rule.id, state, bad: state === "broken", of: { ...rule, what: rule.message ?? "", place, findings: (rule.findings ?? []).length } };
    const each = (rule.findings ?? []).map((one, at) => ({
      keys: [rule.id, one.path || `finding ${at + 1}`], isPart: true, path: `${rule.id}: ${one.path || one.what}`, state, bad: state === "broken",
      of: { ...one, what: [one.what, one.why].filter(Boolean).join(": ") },
    }));
    return [own, ...each];
  });
  const columns = [
    words("", (row) => row.state, 10, { of: "state", style: (row) => (row.bad ? "bad" : "faint") }),
    words("states", (row) => (row.of.rules ?? []).join(", "), 30),
    { title: "leaves", value: (row) => row.of.leaves ?? null, text: (row) => (row.of.leaves === undefined ? "" : countText(row.of.leaves)), numeric: true, width: 10 },
    numbers("least", (row) => row.of.least),
    numbers("most", (row) => row.of.most),
    words("what", (row) => row.of.what, 48),
    words("stands at", (row) => row.of.place ?? "", 20, { style: "faint" }),
  ];
  return { noun: ["rule or finding", "rules and findings"], rows, columns: columns.filter((c) => has(rows, c)) };
};
