// Fusion groups before and after; groups that are alike from layer to layer stand on one row.
const FEW_GROUPS = 12;
let allGroups = false;

function opsOfGroup(group) { return store.groups.ops[group].map((index) => rowOfIndex.get(index)).filter((row) => row !== undefined); }
function alikeGroups() {
  const found = new Map();
  const groups = store.groups;
  for (let g = 0; g < groups.ops.length; g += 1) {
    const names = opsOfGroup(g).map((row) => wordOf(row, "name"));
    const where = modulePattern(groups.module[g]) || "the step";
    const key = JSON.stringify([strings[groups.kind[g]], names, where, groups.compiler[g], groups.rooftile_ops[g]]);
    if (!found.has(key)) {
      found.set(key, { kind: strings[groups.kind[g]], names, where, compiler: groups.compiler[g], ours: strings[groups.rooftile_ops[g]], groups: [], before: 0, after: 0, saved: 0 });
    }
    const alike = found.get(key);
    alike.groups.push(g);
    alike.before += groups.bytes_before[g];
    alike.after += groups.bytes_after[g];
    alike.saved += groups.before_s[g] - groups.after_s[g];
  }
  return [...found.values()].sort((a, b) => b.saved - a.saved);
}
function fusionRow(alike, widest) {
  const shown = alike.names.slice(0, 7).join(" → ") + (alike.names.length > 7 ? ` and ${alike.names.length - 7} more` : "");
  const bar = (bytes, kind) => [
    element("i", { class: kind, style: { width: `${100 * bytes / widest}%` } }), element("span", { class: "num" }, scaled(bytes, "B")),
  ];
  const times = alike.groups.length > 1 ? `${count(alike.groups.length)} × ` : "";
  const made = element("button", { type: "button", class: "fuse" },
    element("span", {}, element("span", { class: "chain" }, shown), element("br"),
      element("span", { class: "where" }, `${times}${alike.where}`),
      element("span", { class: "tag" }, alike.kind), alike.compiler ? element("span", { class: "tag" }, "torch.compile fuses it") : "",
      alike.ours ? element("span", { class: "tag" }, alike.ours) : ""),
    element("span", { class: "beforeafter" }, ...bar(alike.before, "before"), ...bar(alike.after, "after")),
    element("span", { class: "gain" }, element("b", {}, seconds(alike.saved)), element("span", {}, `${percent(shareOf(alike.saved))} saved`)));
  made.addEventListener("click", () => {
    const mine = new Set(alike.groups);
    setScope(`group ${shown} in ${alike.where}`, (row) => mine.has(ops.group[row]));
    byId("ops").scrollIntoView();
  });
  return made;
}
function drawFusion() {
  const box = byId("fusion-groups");
  const found = alikeGroups();
  const widest = Math.max(1, ...found.map((alike) => alike.before));
  const shown = allGroups ? found : found.slice(0, FEW_GROUPS);
  box.replaceChildren(...shown.map((alike) => fusionRow(alike, widest)));
  if (found.length > FEW_GROUPS) {
    const more = element("button", { type: "button", class: "link" }, allGroups ? "Show fewer" : `Show all ${count(found.length)}`);
    more.addEventListener("click", () => { allGroups = !allGroups; drawFusion(); });
    box.append(more);
  }
  if (!found.length) box.replaceChildren("No ops may share a kernel that do not already.");
}
