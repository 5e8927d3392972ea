// One box for every hover: built of text nodes, kept within the window.
function showTooltip(event, ...children) {
  const box = byId("tooltip");
  box.replaceChildren(...children);
  box.hidden = false;
  const gap = 14;
  const { width, height } = box.getBoundingClientRect();
  const right = event.clientX + gap + width < window.innerWidth;
  const left = right ? event.clientX + gap : Math.max(8, event.clientX - gap - width);
  const top = Math.min(event.clientY + gap, window.innerHeight - height - 8);
  box.style.left = `${Math.min(left, Math.max(8, window.innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(8, top)}px`;
}
function hideTooltip() { byId("tooltip").hidden = true; }

function opTooltip(row) {
  const w = ops.work[row];
  const verdict = wordOf(row, "action");
  return [
    element("b", {}, `#${ops.index[row]} ${wordOf(row, "name")}`), " ",
    element("span", { class: "tag" }, wordOf(row, "phase")),
    element("div", { class: "long" }, wordOf(row, "module") || "outside every module"),
    element("div", { class: "long" }, wordOf(row, "shapes")),
    facts([
      ["least time", `${seconds(least[row])}, ${percent(shareOf(least[row]))} of the step`],
      ["FLOP", workPriced[w] ? scaled(workFlops[w], "FLOP") : "not counted"],
      ["bytes", scaled(workBytes[w], "B")],
      ["FLOP/byte", workIntensity[w] === null ? "-" : intensity(workIntensity[w])],
      ["bound", wordOf(row, "bound")],
      ...(verdict ? [["verdict", verdict]] : []),
      ["line", wordOf(row, "line") || "unknown"],
    ]),
  ];
}
