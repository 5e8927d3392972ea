// Wires the parts together.
function drawFilters() {
  const columns = ["bound", ...(meta.planned ? ["action"] : []), "phase"];
  const names = { bound: "Bound", action: "Verdict", phase: "Phase" };
  byId("filters").replaceChildren(...columns.map((column) => {
    const present = new Set(ops.index.map((_, row) => wordOf(row, column)));
    const known = ORDER[column].filter((word) => present.has(word));
    return element("span", { class: "chipset", role: "group", "aria-label": names[column] }, ...known.map((word) => {
      const chip = element("button", { type: "button", class: "chip", "data-word": word, "aria-pressed": "false" }, marked(word));
      chip.addEventListener("click", () => toggleFilter(column, word));
      return chip;
    }));
  }));
}
function showStatus() {
  const time = table.rows.reduce((sum, row) => sum + least[row], 0);
  const moved = table.rows.reduce((sum, row) => sum + workBytes[ops.work[row]], 0);
  byId("status").textContent = `${count(table.rows.length)} of ${plural(opCount, "op")}, ${seconds(time)} (${percent(shareOf(time))}), ${scaled(moved, "B")}`;
  const box = byId("scope");
  box.replaceChildren();
  const filtered = Object.values(selection.filters).some((chosen) => chosen.size);
  if (selection.scope) box.append(element("span", {}, `Only ${selection.scope.label}`));
  if (selection.scope || filtered || selection.search) {
    const clear = element("button", { type: "button", class: "link", id: "clear" }, "Show all");
    clear.addEventListener("click", () => { clearSelection(); byId("search").focus({ preventScroll: true }); });
    box.append(clear);
  }
  for (const chip of byId("filters").querySelectorAll(".chip")) {
    const chosen = Object.values(selection.filters).some((words_) => words_.has(chip.dataset.word));
    chip.setAttribute("aria-pressed", String(chosen));
  }
  if (byId("search").value !== selection.search) byId("search").value = selection.search;
}
function startFindings() {
  document.querySelectorAll(".show-ops").forEach((button) => button.addEventListener("click", () => {
    const mine = new Set(button.dataset.ops.split(",").map((index) => rowOfIndex.get(Number(index))));
    setScope(button.dataset.label, (row) => mine.has(row));
    byId("ops").scrollIntoView();
  }));
}
startTheme();
drawFilters();
startTable();
onSelection(showStatus);
showStatus();
byId("search").addEventListener("input", (event) => changeSelection({ search: event.target.value }));
startFindings();
if (opCount && meta.bandwidth && Object.keys(meta.peaks).length) startRoofline();
else byId("roofline-plot").replaceChildren(element("p", { class: "lead" }, "No op to place, or a GPU without figures."));
if (opCount) startTreemap();
else byId("treemap-plot").replaceChildren();
startBars();
if (meta.planned) drawFusion();
startPrint();
document.documentElement.dataset.ready = "true";
