// Where a twin stands: its keys without those that it shares with its param at the end.
function beyond(row, param) {
  let shared = 0;
  while (shared < row.keys.length - 1 && row.keys.at(-1 - shared) === param.keys.at(-1 - shared)) shared += 1;
  return (row.shown ?? row.keys).slice(0, row.keys.length - shared).join("/");
}

// Rows as a tree that folds, searches, filters and sorts; what is seen of it is a list of lines.

class Rows {
  constructor(view) {
    this.view = view;
    this.byPath = new Map();
    for (const row of view.rows) if (!this.byPath.has(row.path)) this.byPath.set(row.path, row);
    for (const row of view.rows) {
      row.text = row.path.toLowerCase();
      const param = row.twinOf ? this.byPath.get(row.twinOf) : undefined;
      if (param !== undefined && param !== row && !param.twinOf) {
        row.param = param;
        (param.twins ??= []).push(row);
      }
    }
    this.hasTwins = view.rows.some((row) => row.twins);
    this.twinsBeside = this.hasTwins;
    this.isTree = true;
    this.search = "";
    this.states = new Set();
    this.sortedBy = null;
    this.descends = true;
    this.build();
  }

  build() {
    this.root = this.node("", null);
    for (const row of this.view.rows) if (!(this.twinsBeside && row.param)) this.place(row);
    if (this.twinsBeside) for (const row of this.view.rows) if (row.param) this.placeTwin(row);
    this.filter();
  }

  node(name, parent) {
    return { name, parent, depth: parent ? parent.depth + 1 : -1, row: null, children: null, open: false, count: 0, worries: 0, totals: null };
  }

  child(node, key, shown = key) {
    node.children ??= new Map();
    let found = node.children.get(key);
    if (found === undefined) node.children.set(key, (found = this.node(shown, node)));
    return found;
  }

  place(row) {
    let node = this.root;
    row.keys.forEach((key, at) => { node = this.child(node, key, row.shown?.[at]); });
    while (node.row !== null) node = this.child(node, ""); // a key '0' beside an index 0
    node.row = row;
    row.node = node;
  }

  placeTwin(row) {
    const node = this.child(row.param.node, `${row.path}\n`);
    node.name = row.label ||= beyond(row, row.param);
    node.row = row;
    node.isTwin = true;
    row.node = node;
  }

  // Which rows are looked at, and what they come to above them.
  filter() {
    const wanted = this.search.toLowerCase().split(/\s+/).filter(Boolean);
    const totals = this.view.columns.map((column, at) => [at, column]).filter(([, column]) => column.total);
    const reset = (node) => {
      node.count = node.worries = 0;
      node.totals = null;
      node.matches = false;
      if (node.children) for (const below of node.children.values()) reset(below);
    };
    reset(this.root);
    this.matching = [];
    for (const row of this.view.rows) {
      if (this.states.size && !this.states.has(row.state)) continue;
      if (!wanted.every((word) => row.text.includes(word))) continue;
      this.matching.push(row);
      row.node.matches = true;
      const worries = this.view.worrying?.(row) ? 1 : 0;
      for (let node = row.node; node !== null; node = node.parent) {
        node.count += 1;
        node.worries += worries;
        for (const [at, column] of totals) {
          const value = column.value(row);
          if (value === null || value === undefined) continue;
          node.totals ??= [];
          const before = node.totals[at];
          if (before === undefined) node.totals[at] = value;
          else if (column.total === "sum") node.totals[at] = before + value;
          else if (rank(value) > rank(before)) node.totals[at] = value;
        }
      }
    }
    this.sort();
  }

  // Unfold as many levels as have at most so many lines.
  openTo(most) {
    const sizes = [];
    const walk = (node, act) => {
      if (node.children) for (const below of node.children.values()) if (below.count) { act(below); walk(below, act); }
    };
    walk(this.root, (node) => { sizes[node.depth] = (sizes[node.depth] ?? 0) + 1; });
    let [depth, lines] = [0, sizes[0] ?? 0];
    while (depth + 1 < sizes.length && lines + sizes[depth + 1] <= most) lines += sizes[++depth];
    walk(this.root, (node) => { node.open = node.depth < depth; });
    this.see();
  }

  openAll(isOpen) {
    const walk = (node) => {
      if (!node.children) return;
      for (const below of node.children.values()) { below.open = isOpen; walk(below); }
    };
    walk(this.root);
    this.see();
  }

  reveal(row) {
    for (let node = row.node.parent; node !== null; node = node.parent) node.open = true;
    this.see();
    return this.lines.findIndex((line) => line.row === row);
  }

  sort() {
    const column = this.sortedBy;
    if (column !== null) {
      const sums = column.total === "sum";
      const weigh = (node) => {
        let found = node.matches ? column.value(node.row) : null;
        let weight = typeof found === "string" && column.numeric !== true ? found : rank(found);
        if (node.children) {
          for (const below of node.children.values()) {
            if (!below.count) continue;
            const other = weigh(below);
            if (sums && finite(weight) && finite(other)) weight = Math.max(weight, 0) + Math.max(other, 0);
            else if (!node.matches && this.compare(other, weight) > 0) weight = other;
          }
        }
        node.weight = weight;
        return weight;
      };
      weigh(this.root);
    }
    this.see();
  }

  compare(a, b) {
    if (typeof a === "string" && typeof b === "string") return a < b ? 1 : a > b ? -1 : 0;
    if (typeof a === "string") return 1;
    if (typeof b === "string") return -1;
    return a < b ? -1 : a > b ? 1 : 0;
  }

  ordered(found, weight) {
    if (this.sortedBy === null) return found;
    const sign = this.descends ? -1 : 1;
    return found.map((one) => [weight(one), one]).sort((a, b) => sign * this.compare(a[0], b[0])).map(([, one]) => one);
  }

  see() {
    if (!this.isTree) {
      const value = (row) => { const found = this.sortedBy.value(row); return typeof found === "string" && !this.sortedBy.numeric ? found : rank(found); };
      this.lines = this.ordered(this.matching, value).map((row) => ({ row, node: null, depth: 0 }));
      return;
    }
    this.lines = [];
    const walk = (node) => {
      if (!node.children) return;
      const below = this.ordered([...node.children.values()].filter((one) => one.count), (one) => one.weight);
      for (const one of below) {
        this.lines.push({ row: one.row, node: one, depth: one.depth });
        if (one.open) walk(one);
      }
    };
    walk(this.root);
  }
}
