// The table of ops. Only the rows in sight are in the document, so 20,000 scroll like 20.
const ROW_HEIGHT = 34;
const SPARE_ROWS = 8;
const NARROW = window.matchMedia("(max-width: 760px)");

function flopsOf(row) { return workPriced[ops.work[row]] ? workFlops[ops.work[row]] : -1; }
function marked(word) {
  return element("span", { class: "mark", style: { "--mark": `var(${COLOURS[word] || "--leave"})` } }, word);
}
function words(column) {
  return {
    text: (row) => wordOf(row, column) || "-",
    order: (row) => { const text = textOf[column](row); return text < 0 ? -1 : rank[text]; },
  };
}
const COLUMNS = [
  { key: "index", title: "#", width: "44px", number: true, text: (row) => String(ops.index[row]), order: (row) => ops.index[row] },
  { key: "name", title: "op", width: "minmax(112px, 1fr)", narrow: true, ...words("name") },
  { key: "module", title: "module", width: "minmax(130px, 1.8fr)", tail: true, ...words("module") },
  { key: "line", title: "line", width: "minmax(116px, 1.1fr)", tail: true, ...words("line") },
  { key: "shapes", title: "shapes", width: "minmax(90px, 1.7fr)", ...words("shapes") },
  { key: "flops", title: "FLOP", width: "66px", number: true, text: (row) => (flopsOf(row) < 0 ? "?" : scaled(flopsOf(row), "")), order: flopsOf },
  { key: "bytes", title: "bytes", width: "72px", number: true, text: (row) => scaled(workBytes[ops.work[row]], "B"), order: (row) => workBytes[ops.work[row]] },
  { key: "intensity", title: "FLOP/B", width: "58px", number: true, text: (row) => { const v = workIntensity[ops.work[row]]; return v === null ? "-" : v && v < 0.001 ? "<0.001" : intensity(Number(v.toPrecision(v < 1 ? 3 : 4))); }, order: (row) => workIntensity[ops.work[row]] ?? -1 },
  { key: "bound", title: "bound", width: "82px", narrow: !meta.planned, mark: true, ...words("bound") },
  { key: "time", title: "least time", width: "82px", narrow: true, number: true, text: (row) => seconds(least[row]), order: (row) => least[row] },
  { key: "share", title: "share", width: "54px", number: true, text: (row) => percent(shareOf(least[row])), order: (row) => least[row] },
  ...(meta.planned ? [
    { key: "action", title: "verdict", width: "108px", narrow: true, mark: true, ...words("action") },
    { key: "stake", title: "at stake", width: "62px", number: true, text: (row) => (stakeOf(row) ? seconds(stakeOf(row)) : "-"), order: stakeOf },
  ] : []),
];
const table = { rows: [], sort: "time", descending: true, columns: COLUMNS, head: null, body: null, first: -1, last: -1 };

function layOutTable() {
  table.columns = COLUMNS.filter((column) => !NARROW.matches || column.narrow);
  const widths = NARROW.matches
    ? table.columns.map((c) => (c.key === "name" ? "minmax(90px, 1fr)" : c.width))
    : table.columns.map((c) => c.width);
  const grid = byId("grid");
  grid.style.setProperty("--columns", widths.join(" "));
  grid.style.setProperty("--width", NARROW.matches ? "0" : "1270px");
  grid.setAttribute("aria-colcount", String(table.columns.length));
  table.head = element("div", { class: "thead", role: "rowgroup" }, headRow());
  table.body = element("div", { class: "tbody", role: "rowgroup" });
  grid.replaceChildren(table.head, table.body);
  refreshTable(false);
}
function headRow() {
  const row = element("div", { class: "trow", role: "row", "aria-rowindex": "1" });
  for (const column of table.columns) {
    const sorted = column.key === table.sort;
    const direction = table.descending ? "descending" : "ascending";
    const arrow = sorted ? (table.descending ? " ↓" : " ↑") : "";
    const button = element("button", { type: "button", "data-key": column.key }, column.title + arrow);
    row.append(element("div", { role: "columnheader", class: column.number ? "num" : "", "aria-sort": sorted ? direction : "none" }, button));
  }
  return row;
}
function sortTable(key) {
  const column = COLUMNS.find((c) => c.key === key);
  table.descending = table.sort === key ? !table.descending : Boolean(column.number && key !== "index");
  table.sort = key;
  table.head.replaceChildren(headRow());
  table.head.querySelector(`[data-key="${key}"]`).focus({ preventScroll: true });
  refreshTable(false);
}
function refreshTable(filtered = true) {
  if (filtered || !table.rows.length) table.rows = selectedRows();
  const { order } = COLUMNS.find((c) => c.key === table.sort);
  const keys = new Float64Array(opCount);
  table.rows.forEach((row) => { keys[row] = order(row); });
  const sign = table.descending ? -1 : 1;
  table.rows.sort((a, b) => sign * (keys[a] - keys[b]) || a - b);
  const grid = byId("grid");
  grid.setAttribute("aria-rowcount", String(table.rows.length + 1));
  if (filtered) grid.scrollTop = 0;
  table.first = -1;
  drawRows();
}
function drawRows() {
  const grid = byId("grid");
  const first = Math.max(0, Math.floor(grid.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  const last = Math.min(table.rows.length, Math.ceil((grid.scrollTop + grid.clientHeight) / ROW_HEIGHT) + SPARE_ROWS);
  if (first === table.first && last === table.last) return;
  [table.first, table.last] = [first, last];
  table.body.style.height = `${table.rows.length * ROW_HEIGHT}px`;
  const drawn = [];
  for (let place = first; place < last; place += 1) drawn.push(bodyRow(place));
  if (!table.rows.length) drawn.push(element("div", { class: "nothing" }, "No op fits the search and the filters."));
  table.body.replaceChildren(...drawn);
}
function bodyRow(place) {
  const row = table.rows[place];
  const made = element("div", {
    class: "trow", role: "row", id: `op-${row}`, "data-place": String(place), "aria-rowindex": String(place + 2),
    "aria-selected": String(row === selection.picked), style: { top: `${place * ROW_HEIGHT}px` },
  });
  for (const column of table.columns) {
    const text = column.text(row);
    const cell = element("div", { role: "gridcell", class: column.number ? "num" : "" });
    if (!column.number) cell.title = text;
    if (column.mark) cell.append(marked(text));
    else if (column.tail) { // the end of a path tells more than its start
      cell.classList.add("tail");
      cell.append(element("bdi", {}, column.key === "line" ? text.slice(text.lastIndexOf("/") + 1) : text));
    }
    else cell.append(text);
    if (column.key === "name" && wordOf(row, "phase") !== "forward") {
      cell.append(" ", element("span", { class: "tag" }, wordOf(row, "phase") === "backward" ? "bwd" : "opt"));
    }
    made.append(cell);
  }
  return made;
}
function scrollToPlace(place) {
  const grid = byId("grid");
  const seen = grid.clientHeight - 2 * ROW_HEIGHT;
  const top = place * ROW_HEIGHT;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top > grid.scrollTop + seen) grid.scrollTop = top - seen;
}
function pickPlace(place) {
  if (!table.rows.length) return;
  const within = Math.min(Math.max(place, 0), table.rows.length - 1);
  scrollToPlace(within);
  pick(table.rows[within]);
}
function moveByKey(event) {
  const page = Math.max(1, Math.floor(byId("grid").clientHeight / ROW_HEIGHT) - 2);
  const now = table.rows.indexOf(selection.picked);
  const moves = { ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + page, PageUp: now - page, Home: 0, End: table.rows.length - 1 };
  if (event.key in moves) {
    event.preventDefault();
    pickPlace(moves[event.key]);
  } else if (event.key === "Enter" && event.target === byId("grid")) {
    byId("details").scrollIntoView({ block: "nearest" });
  }
}
function markPicked(row) {
  const grid = byId("grid");
  drawRows();
  table.body.querySelectorAll("[aria-selected='true']").forEach((old) => old.setAttribute("aria-selected", "false"));
  const drawn = byId(`op-${row}`);
  if (drawn) {
    drawn.setAttribute("aria-selected", "true");
    grid.setAttribute("aria-activedescendant", drawn.id);
  } else grid.removeAttribute("aria-activedescendant");
}
function startTable() {
  const grid = byId("grid");
  layOutTable();
  NARROW.addEventListener("change", layOutTable);
  new ResizeObserver(() => { table.first = -1; drawRows(); }).observe(grid);
  grid.addEventListener("scroll", () => requestAnimationFrame(drawRows));
  grid.addEventListener("keydown", moveByKey);
  grid.addEventListener("click", (event) => {
    const header = event.target.closest("[data-key]");
    const row = event.target.closest("[data-place]");
    if (header) sortTable(header.dataset.key);
    else if (row) pickPlace(Number(row.dataset.place));
  });
  onSelection(() => refreshTable());
  onPick(markPicked);
  onPick(showDetails);
  showDetails(-1);
}
