// The table of all rows, of which only those are drawn that are seen: a tree that is walked by keys as by mouse.

const ROW_HEIGHT = 26;
const MOST_PRINTED = 3000;

// As wide as its texts are, within reason; of very many rows the first tell.
function fitting(column, rows) {
  const title = (column.title || column.of || "").length + 2;
  if (column.draw) return Math.max(title, column.width);
  let longest = 0;
  for (const row of rows.slice(0, 5000)) longest = Math.max(longest, (column.text(row) ?? "").length);
  return Math.max(title, Math.min(longest, Math.max(column.width, 10)));
}

class Table {
  constructor(rows, onChoose) {
    this.rows = rows;
    this.onChoose = onChoose;
    this.at = 0;
    this.chosen = null;
    this.body = element("tbody", {});
    this.heads = [];
    const columns = rows.view.columns;
    columns.forEach((column) => { column.width = fitting(column, rows.view.rows); });
    const widths = element("colgroup", {}, element("col", {}), ...columns.map(() => element("col", {})));
    [...widths.children].forEach((col, at) => { col.style.width = at ? `${columns[at - 1].width + 2}ch` : "auto"; });
    this.table = element("table", { role: "treegrid", "aria-label": `all ${rows.view.noun[1]}` }, widths, element("thead", {}, this.header(columns)), this.body);
    this.table.style.minWidth = `${columns.reduce((sum, column) => sum + column.width + 2, 0) + 30}ch`;
    this.box = element("div", { class: "grid", tabindex: "-1" }, this.table);
    this.box.addEventListener("scroll", () => this.soon());
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    window.addEventListener("resize", () => this.soon());
    window.addEventListener("beforeprint", () => this.draw(true));
    window.addEventListener("afterprint", () => this.draw());
  }

  header(columns) {
    const name = { title: this.rows.view.noun[0], value: (row) => row.path, isName: true };
    return element("tr", { role: "row", "aria-rowindex": 1 }, ...[name, ...columns].map((column) => {
      const button = element("button", { type: "button", title: "sort" }, column.title || column.of);
      const head = element("th", { scope: "col", role: "columnheader", class: column.numeric ? "right" : null }, button);
      button.addEventListener("click", () => this.sortBy(column));
      this.heads.push([head, column]);
      return head;
    }));
  }

  // First what is largest, or first in the alphabet; then the other way round; then as it stands in the document.
  sortBy(column) {
    const rows = this.rows;
    if (rows.sortedBy !== column) [rows.sortedBy, rows.descends] = [column, true];
    else if (rows.descends) rows.descends = false;
    else rows.sortedBy = null;
    for (const [head, one] of this.heads) {
      const isUp = rows.descends !== Boolean(one.numeric || one.draw); // texts begin at A
      if (rows.sortedBy === one) head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    rows.sort();
    this.show();
  }

  // After what is seen has changed: from the top.
  show() {
    this.at = 0;
    this.box.scrollTop = 0;
    this.draw();
  }

  soon() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => { this.isDue = false; this.draw(); });
  }

  draw(isPrinted = false) {
    const lines = this.rows.lines;
    const seen = Math.ceil(this.box.clientHeight / ROW_HEIGHT);
    const start = isPrinted ? 0 : Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 10);
    const end = isPrinted ? Math.min(lines.length, MOST_PRINTED) : Math.min(lines.length, start + seen + 20);
    const hadFocus = this.body.contains(document.activeElement);
    const drawnLines = lines.slice(start, end).map((line, at) => this.line(line, start + at));
    this.body.replaceChildren(this.gap(start), ...drawnLines, this.gap(isPrinted ? 0 : lines.length - end));
    if (isPrinted && lines.length > end) this.body.append(element("tr", {}, element("td", { colspan: this.heads.length }, `and ${countText(lines.length - end)} more lines`)));
    this.table.setAttribute("aria-rowcount", lines.length + 1);
    if (hadFocus) this.focus();
  }

  gap(count) {
    const made = element("tr", { class: "gap", "aria-hidden": "true" });
    made.style.height = `${count * ROW_HEIGHT}px`;
    return made;
  }

  line(line, at) {
    const { row, node, depth } = line;
    const isFolder = Boolean(node?.children && [...node.children.values()].some((one) => one.count));
    const isOwn = row !== null && (node === null || node.matches);
    const made = element("tr", {
      role: "row", "aria-level": depth + 1, "aria-rowindex": at + 2, "data-at": at, tabindex: at === this.at ? "0" : "-1",
      "aria-expanded": isFolder ? String(node.open) : null, "aria-selected": row !== null && row === this.chosen ? "true" : null,
      class: row?.first ? "first" : null,
    });
    made.append(this.name(line, isFolder, isOwn));
    this.rows.view.columns.forEach((column, number) => made.append(this.cell(column, number, isOwn ? row : null, node)));
    return made;
  }

  name({ row, node, depth }, isFolder, isOwn) {
    const cell = element("td", { role: "rowheader", class: "name", title: printable(row ? row.path : "") || null });
    cell.style.paddingInlineStart = `${depth * 16 + 6}px`;
    cell.append(element("span", { class: "fold", "aria-hidden": "true" }, isFolder ? (node.open ? "▾" : "▸") : ""));
    if (node === null) return cell.append(isolated(row.path, row.isRed ? "bad" : "")), cell;
    cell.append(isolated(node.name || ".", isOwn && row.isRed ? "bad" : node.isTwin ? "twin" : isOwn ? "" : "strong"));
    if (isFolder && !isOwn) cell.append("/");
    if (isFolder) {
      const count = node.count - (node.matches ? 1 : 0);
      const what = isOwn && [...node.children.values()].every((one) => one.isTwin) ? counted(count, "twin") : counted(count, ...this.rows.view.noun);
      if (isOwn || node.worries < node.count) cell.append(element("span", { class: "faint count" }, what));
      if (node.worries && !isOwn) cell.append(element("span", { class: "bad count" }, this.rows.view.worry(node.worries)));
    }
    return cell;
  }

  cell(column, number, row, node) {
    const made = element("td", { role: "gridcell", class: column.numeric ? "right" : null });
    if (row !== null) {
      if (column.draw) made.append(column.draw(row) ?? "");
      else {
        const text = column.text(row) ?? "";
        const style = typeof column.style === "function" ? column.style(row) : column.style;
        const raw = column.numeric ? column.value(row) : null;
        const isBad = typeof raw === "string" && raw !== "";
        if (text !== "") made.append(isolated(text, isBad ? "bad" : style));
        if (text.length > column.width) made.title = printable(text);
      }
    } else if (node?.totals?.[number] !== undefined) {
      made.append(element("span", { class: "faint" }, (column.totalText ?? numberText)(node.totals[number])));
    }
    return made;
  }

  click(event) {
    const made = event.target.closest("tr[data-at]");
    if (made === null) return;
    this.at = Number(made.dataset.at);
    const line = this.rows.lines[this.at];
    const isFold = event.target.closest(".fold") !== null;
    if (line.node?.children && (isFold || line.row === null)) this.fold(line.node, !line.node.open);
    else this.choose(line.row);
    this.focus();
  }

  fold(node, isOpen) {
    node.open = isOpen;
    this.rows.see();
    this.draw();
  }

  choose(row) {
    this.chosen = row;
    this.draw();
    this.onChoose(row);
  }

  // Bring a row into sight, wherever it is folded away.
  goTo(row) {
    if (this.rows.isTree) this.rows.reveal(row);
    const at = this.rows.lines.findIndex((line) => line.row === row);
    if (at < 0) return this.choose(row);
    this.at = at;
    this.draw(); // as long as it is now: what is not there cannot be scrolled to
    this.scrollTo(at);
    this.choose(row);
  }

  scrollTo(at) {
    const [above, view] = [this.table.tHead.offsetHeight, this.box.clientHeight];
    const top = at * ROW_HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW_HEIGHT + above > this.box.scrollTop + view) this.box.scrollTop = top + ROW_HEIGHT + above - view;
  }

  focus() {
    this.body.querySelector(`tr[data-at="${this.at}"]`)?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.target.closest("thead") || event.ctrlKey || event.metaKey || event.altKey) return;
    const lines = this.rows.lines;
    const { node, row, depth } = lines[this.at] ?? {};
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -lines.length, End: lines.length };
    if (event.key in moves) this.move(this.at + moves[event.key]);
    else if (event.key === "ArrowRight" && node?.children && !node.open) this.fold(node, true);
    else if (event.key === "ArrowRight" && node?.children) this.move(this.at + 1);
    else if (event.key === "ArrowLeft" && node?.children && node.open) this.fold(node, false);
    else if (event.key === "ArrowLeft") { let at = this.at; while (at > 0 && lines[at].depth >= depth) at -= 1; this.move(at); }
    else if (event.key === "Enter" || event.key === " ") { if (row) this.choose(row); else if (node) this.fold(node, !node.open); }
    else return;
    event.preventDefault();
    this.focus();
  }

  move(at) {
    this.at = Math.min(Math.max(at, 0), this.rows.lines.length - 1);
    this.scrollTo(this.at);
    this.draw();
  }
}
