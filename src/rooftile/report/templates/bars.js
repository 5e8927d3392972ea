// Least time by op, module, line or phase, its parts by bound; each bar filters the table.
const bars = { by: "name", all: false };
const FEW_BARS = 12;

function barKey(row) {
  if (bars.by === "module") return pathOf(row).join(".");
  return wordOf(row, bars.by) || "(unknown)";
}
function barRow(group, longest) {
  const track = element("span", { class: "track", "aria-hidden": "true" });
  for (const bound of ORDER.bound) {
    const part = group.parts[bound];
    if (part) track.append(element("span", { class: `b-${bound}`, style: { width: `${100 * part / longest}%` } }));
  }
  const name = element("span", { class: "name", title: group.key }, group.key);
  const made = element("button", { type: "button", class: "barrow" }, name, track,
    element("span", { class: "num" }, seconds(group.time)), element("span", { class: "num dim" }, percent(shareOf(group.time))));
  made.addEventListener("click", () => setScope(group.key, (row) => barKeyOf(bars.by, row) === group.key));
  made.addEventListener("mousemove", (event) => showTooltip(event, element("b", {}, group.key), facts([
    ["ops", count(group.ops)],
    ...ORDER.bound.filter((bound) => group.parts[bound]).map((bound) => [bound, seconds(group.parts[bound])]),
  ])));
  made.addEventListener("mouseleave", hideTooltip);
  return made;
}
function barKeyOf(by, row) {
  const now = bars.by;
  bars.by = by;
  const key = barKey(row);
  bars.by = now;
  return key;
}
function drawBars() {
  const groups = timesBy(barKey);
  const shown = bars.all ? groups : groups.slice(0, FEW_BARS);
  const list = element("div", { class: "barlist" }, ...shown.map((group) => barRow(group, groups[0].time || 1)));
  const box = byId("bars");
  box.replaceChildren(list);
  if (groups.length > FEW_BARS) {
    const more = element("button", { type: "button", class: "link" }, bars.all ? "Show fewer" : `Show all ${count(groups.length)}`);
    more.addEventListener("click", () => { bars.all = !bars.all; drawBars(); });
    box.append(more);
  }
  if (!groups.length) box.replaceChildren("No op launches a kernel.");
}
function startBars() {
  drawBars();
  segmented("bars-by", (by) => { Object.assign(bars, { by, all: false }); drawBars(); });
}
