// A model's calls, in the order in which they finish: those of one run, or of two side by side.

VIEWS.Probe = (found) => (found.comparison ? comparedCalls(found) : calls(found));

const callKeys = (path, name) => [...(path === "." ? [] : path.split("/")), name];
const badOf = (seen) => Boolean(seen && (seen.nan || seen.inf));
const badText = (seen) => (seen ? [[seen.nan, "NaN"], [seen.inf, "infinite"]].filter(([n]) => n).map(([n, word]) => `${countText(n)} ${word}`).join(", ") : "");

function calls(found) {
  const rows = [
    ...found.sites.map((site) => ({
      keys: callKeys(site.path, site.name), path: site.name, of: site,
      state: site.ran === 0 ? "not taken" : badOf(site.statistics) || badOf(site.gradient) ? "not finite" : (site.marks ?? [])[0] ?? "call",
      bad: badOf(site.statistics) || badOf(site.gradient), first: found.first_non_finite?.where === site.name,
    })),
    ...(found.params ?? []).map((param) => ({
      keys: ["gradients", ...param.path.split("/")], path: param.path, of: { ...param, statistics: null }, state: "gradient", bad: badOf(param.gradient),
    })),
  ];
  const stat = (name) => (row) => (row.of.statistics ?? (row.state === "gradient" ? row.of.gradient : null))?.[name];
  const marks = (row) => [...(row.of.marks ?? []), badText(row.of.statistics), row.of.gradient && badOf(row.of.gradient) ? `gradient ${badText(row.of.gradient)}` : "", row.first ? "first that is not finite" : ""].filter(Boolean).join(", ");
  const columns = [
    words("class", (row) => row.of.kind ?? "", 14, { style: "faint" }),
    words("shape", (row) => `${(row.of.iterations ?? []).map((n) => `${n} × `).join("")}${arrayText(row.of.dtype, row.of.shape)}`, 22),
    ...["mean", "std", "min", "max", "rms"].map((name) => numbers(name, stat(name))),
    { title: "zeros", value: stat("zeros"), text: (row) => { const zeros = stat("zeros")(row); return zeros ? `${(100 * zeros).toFixed(1)}%` : zeros === 0 ? "0" : ""; }, numeric: true, width: 8 },
    numbers("gradient rms", (row) => row.of.gradient?.rms, { width: 12 }),
    words("", marks, 26, { of: "marks", style: (row) => (row.bad ? "bad" : "strong") }),
  ];
  const curve = (name) => found.sites.map((site) => (badOf(site[name]) ? NaN : site[name]?.rms ?? null));
  const charts = [{ title: "rms of activations, in the order in which calls finish", names: found.sites.map((site) => site.name), curves: [{ values: curve("statistics") }], first: found.first_non_finite?.where }];
  if (found.sites.some((site) => site.gradient)) charts.push({ title: "rms of gradients", names: charts[0].names, curves: [{ values: curve("gradient") }], first: found.first_non_finite?.where });
  return { noun: ["call", "calls"], rows, columns: columns.filter((c) => has(rows, c)), charts: charts.filter((chart) => chart.curves[0].values.some((v) => v !== null)), inOrder: true };
}

function comparedCalls(found) {
  const other = found.comparison;
  const site = new Map(found.sites.map((one) => [one.name, one]));
  const row = (pair, group, first) => ({
    keys: group ? [group, ...(pair.kind === "param" ? pair.a.split("/") : [pair.a])] : callKeys(site.get(pair.a)?.path ?? ".", pair.a),
    path: pair.a, of: pair, first: pair.a === first,
    state: rank(pair.relative) > other.tolerance ? "differs" : "agrees", bad: rank(pair.relative) > other.tolerance,
  });
  const rows = [
    ...other.sites.map((pair) => row(pair, "", other.first_different)),
    ...other.outputs.map((pair) => row(pair, "outputs")),
    ...other.gradients.map((pair) => row(pair, "gradients", other.first_different_gradient)),
    ...other.only_in_a.map((name) => ({ keys: ["only here", name], path: name, of: {}, state: "only here" })),
    ...other.only_in_b.map((name) => ({ keys: ["only there", name], path: name, of: {}, state: "only there" })),
  ];
  const columns = [
    words("", (one) => (one.first ? "first that differs" : one.state), 17, { of: "state", style: (one) => (one.bad ? "bad" : "faint") }),
    words("there", (one) => (one.of.b && one.of.b !== one.of.a ? one.of.b : ""), 20),
    words("class", (one) => one.of.kind ?? "", 14, { style: "faint" }),
    numbers("difference", (one) => one.of.relative, { total: "max" }),
    numbers("largest", (one) => one.of.max_abs, { total: "max" }),
    numbers("rms here", (one) => one.of.rms_a),
    numbers("rms there", (one) => one.of.rms_b),
    numbers("gradient here", (one) => one.of.gradient_rms_a, { width: 13 }),
    numbers("gradient there", (one) => one.of.gradient_rms_b, { width: 13 }),
  ];
  const names = other.sites.map((pair) => pair.a);
  const both = (a, b) => [{ title: "here", values: other.sites.map((pair) => pair[a] ?? null) }, { title: "there", values: other.sites.map((pair) => pair[b] ?? null) }];
  const charts = [
    { title: "difference of activations, relative", names, curves: [{ values: other.sites.map((pair) => pair.relative) }], first: other.first_different, limit: other.tolerance },
    { title: "rms of activations", names, curves: both("rms_a", "rms_b"), first: other.first_different },
  ];
  if (other.sites.some((pair) => pair.gradient_rms_a !== undefined)) charts.push({ title: "rms of gradients", names, curves: both("gradient_rms_a", "gradient_rms_b"), first: other.first_different });
  return {
    noun: ["call", "calls"], rows, columns: columns.filter((c) => has(rows, c)), charts: names.length ? charts : [],
    worrying: (one) => one.bad, worry: (count) => `${countText(count)} differ${count === 1 ? "s" : ""}`, inOrder: true,
  };
}
