// On paper: light colours, shapes instead of a canvas, and the first rows of the table as it stands.
const PRINTED_ROWS = 40;

function printTable() {
  const columns = COLUMNS.filter((column) => !["shapes", "share"].includes(column.key));
  const cell = (column, row, tag = "td") => {
    const text = row === null ? column.title : column.text(row);
    const shown = column.key === "line" ? text.slice(text.lastIndexOf("/") + 1) : text;
    return element(tag, { class: column.number ? "num" : column.tail ? "wrapped" : "" }, shown);
  };
  const head = element("thead", {}, element("tr", {}, ...columns.map((column) => cell(column, null, "th"))));
  const rows = table.rows.slice(0, PRINTED_ROWS);
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...columns.map((column) => cell(column, row)))));
  const words = element("p", { class: "dim" }, `The first ${count(rows.length)} of ${plural(table.rows.length, "op")} as the table is sorted and filtered.`);
  byId("print-table").replaceChildren(words, element("table", { class: "simple" }, head, body));
}
function startPrint() {
  const redraw = () => { drawRoofline(); drawTreemap(); };
  const light = { before: undefined };
  window.addEventListener("beforeprint", () => {
    printing = true;
    light.before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    printTable();
    redraw();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    if (light.before) document.documentElement.dataset.theme = light.before;
    else delete document.documentElement.dataset.theme;
    redraw();
  });
}
