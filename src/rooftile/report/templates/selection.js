// Which rows the table shows: search, filters, and a scope that a chart has set.
const selection = {
  search: "", filters: { bound: new Set(), action: new Set(), phase: new Set() }, scope: null,
  listeners: [], picked: -1, pickListeners: [],
};
const SEARCHED = ["name", "aten", "module", "line", "shapes", "reason", "action", "bound", "phase"];

function onSelection(listener) { selection.listeners.push(listener); }
function changeSelection(change) {
  Object.assign(selection, change);
  selection.listeners.forEach((listener) => listener());
}
function setScope(label, holds) { changeSelection({ scope: holds ? { label, holds } : null }); }
function onPick(listener) { selection.pickListeners.push(listener); }
function pick(row) {
  selection.picked = row;
  selection.pickListeners.forEach((listener) => listener(row));
}
function toggleFilter(column, word) {
  const chosen = selection.filters[column];
  if (!chosen.delete(word)) chosen.add(word);
  changeSelection({});
}
function clearSelection() {
  Object.values(selection.filters).forEach((chosen) => chosen.clear());
  changeSelection({ search: "", scope: null });
}

// Every word of the search must stand in some text of the row; each text is looked at once.
function wordTests() {
  const words = selection.search.toLowerCase().split(/\s+/).filter(Boolean);
  return words.map((word) => {
    const hits = Uint8Array.from(strings, (text) => (text.toLowerCase().includes(word) ? 1 : 0));
    const number = /^#\d+$/.test(word) ? Number(word.slice(1)) : -1;
    return (row) => ops.index[row] === number || SEARCHED.some((column) => {
      const text = textOf[column](row);
      return text >= 0 && hits[text] === 1;
    });
  });
}
function selectedRows() {
  const tests = wordTests();
  for (const [column, chosen] of Object.entries(selection.filters)) {
    if (chosen.size) tests.push((row) => chosen.has(wordOf(row, column)));
  }
  if (selection.scope) tests.push(selection.scope.holds);
  const rows = [];
  for (let row = 0; row < opCount; row += 1) if (tests.every((test) => test(row))) rows.push(row);
  return rows;
}
