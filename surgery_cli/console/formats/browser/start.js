// Read the document, and put its drawings and its table on the page.

function start() {
  const data = document.getElementById("document");
  const view = VIEWS[data.dataset.kind]?.(JSON.parse(data.textContent));
  if (!view || !view.rows.length) return;
  const rows = new Rows(view);
  const worrying = [...new Set(view.rows.filter((row) => view.worrying?.(row)).map((row) => row.state))];
  rows.isTree = !view.inOrder;
  const panel = element("aside", { "aria-label": "the one that is chosen", "aria-live": "polite" });
  const status = element("p", { class: "status", role: "status" });
  const table = new Table(rows, (row) => panel.replaceChildren(details(row, (other) => table.goTo(other))));
  const say = () => {
    const [shown, all] = [rows.matching.length, view.rows.length];
    status.textContent = shown === all ? counted(all, ...view.noun) : `${countText(shown)} of ${counted(all, ...view.noun)}`;
  };
  const changed = (isSearched = true) => {
    rows.filter();
    if (isSearched) rows.openTo(rows.matching.length <= 300 && rows.search ? Infinity : 60);
    table.show();
    say();
  };
  const find = (name) => { const row = rows.byPath.get(name); if (row) table.goTo(row); };
  const explorer = document.getElementById("explorer");
  explorer.append(charts(view, find), toolbar(rows, table, worrying, changed), element("div", { class: "split" }, table.box, panel), status);
  document.documentElement.classList.add("explored");
  if (view.beginsWithWorries) for (const state of worrying) rows.states.add(state);
  explorer.querySelectorAll(".states button").forEach((button) => button.setAttribute("aria-pressed", String(rows.states.has(button.dataset.state))));
  changed();
  const first = view.rows.find((row) => row.first) ?? rows.matching.find((row) => row.isRed) ?? rows.matching.find((row) => row.bad) ?? rows.matching.find((row) => row.twins) ?? rows.matching[0];
  if (first) table.goTo(first);
}

function charts(view, find) {
  const place = element("div", { class: "charts" });
  const draw = () => {
    const width = Math.max(480, place.clientWidth || 960);
    place.replaceChildren(...(view.charts ?? []).map((chart) => element("figure", {}, caption(chart), lineChart(chart, width, find))));
  };
  new ResizeObserver(() => requestAnimationFrame(() => { if (place.dataset.width !== String(place.clientWidth)) { place.dataset.width = place.clientWidth; draw(); } })).observe(place);
  return place;
}

function caption(chart) {
  const keys = chart.curves.length > 1 ? chart.curves.map((curve, at) => element("span", { class: `key key${at}` }, curve.title)) : [];
  return element("figcaption", {}, chart.title, ...keys);
}

function toolbar(rows, table, worrying, changed) {
  const search = element("input", { type: "search", placeholder: `search ${rows.view.noun[1]}`, "aria-label": `search ${rows.view.noun[1]}`, spellcheck: "false" });
  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { rows.search = search.value; changed(); }, 60); });
  const button = (text, act, more = {}) => { const made = element("button", { type: "button", ...more }, text); made.addEventListener("click", () => act(made)); return made; };
  const press = (made, isOn) => made.setAttribute("aria-pressed", String(isOn));
  const folds = [button("unfold all", () => { rows.openAll(true); table.show(); }), button("fold all", () => { rows.openAll(false); table.show(); })];
  const tree = button("tree", (made) => {
    rows.isTree = !rows.isTree;
    press(made, rows.isTree);
    folds.forEach((one) => { one.disabled = !rows.isTree; });
    rows.see();
    table.show();
  }, { "aria-pressed": "true" });
  press(tree, rows.isTree);
  folds.forEach((one) => { one.disabled = !rows.isTree; });
  const tools = element("div", { class: "tools", role: "toolbar", "aria-label": "table" }, search, tree, ...folds);
  if (rows.hasTwins) tools.append(button("twins beside their params", (made) => { rows.twinsBeside = !rows.twinsBeside; press(made, rows.twinsBeside); rows.build(); changed(); }, { "aria-pressed": "true" }));
  const counts = new Map();
  for (const row of rows.view.rows) if (!row.isPart) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  if (counts.size > 1) tools.append(element("span", { class: "states", role: "group", "aria-label": "only" }, ...[...counts].map(([state, count]) =>
    button(`${printable(state)} ${countText(count)}`, (made) => {
      if (!rows.states.delete(state)) rows.states.add(state);
      press(made, rows.states.has(state));
      changed();
    }, { "aria-pressed": "false", "data-state": state, class: worrying.includes(state) ? "worry" : null }))));
  return tools;
}

start();
