// All there is to know about one op, under the table.
const FLOORS = [
  ["launch_s", "launch"], ["matrix_s", "matrix FLOP"], ["vector_s", "vector FLOP"],
  ["hbm_s", "bytes, cold"], ["l2_s", "bytes in the L2"],
];

function floorFacts(w) {
  const longest = Math.max(...FLOORS.map(([column]) => work[column][w]));
  return FLOORS.map(([column, name]) => {
    const time = work[column][w];
    const wins = column !== "l2_s" && time > 0 && time === work.least_s[w];
    const width = longest ? 90 * time / longest : 0;
    const bar = element("span", { class: `floor${wins ? " wins" : ""}`, style: { width: `${width}px` } });
    return [name, [bar, seconds(time)]];
  });
}
function workFacts(row) {
  const w = ops.work[row];
  const flops = workPriced[w] ? (value) => count(value) : () => "not counted";
  const dense = work.dense_matrix_flops[w];
  return [
    ["torch op", wordOf(row, "aten")],
    ["module", wordOf(row, "module") || "outside every module"],
    ["line", wordOf(row, "line") || "unknown"],
    ["shapes", wordOf(row, "shapes") || "-"],
    ["matrix FLOP", flops(work.matrix_flops[w])],
    ...(dense === work.matrix_flops[w] ? [] : [["without the mask's savings", flops(dense)]]),
    ["vector FLOP", flops(work.vector_flops[w])],
    ["bytes read", count(work.read_bytes[w])],
    ["bytes written", count(work.write_bytes[w])],
    ["formula", strings[work.formula[w]] || "none"],
  ];
}
function verdictFacts(row) {
  const v = ops.verdict[row];
  if (v < 0) return [];
  const verdicts = store.verdicts;
  const group = ops.group[row];
  const refused = refusalsOf(row);
  return [
    ["verdict", wordOf(row, "action")],
    ["why", strings[verdicts.reason[v]]],
    ["rule", strings[verdicts.rule[v]]],
    ["at stake", seconds(verdicts.at_stake_s[v])],
    ["covered by", strings[verdicts.cover[v]] || "nothing"],
    ["Rooftile op", strings[verdicts.rooftile_op[v]] || "none"],
    ...verdicts.why_not[v].map(([action, why]) => [`not ${strings[action]}`, strings[why]]),
    ["fusion group", group < 0 ? "none" : groupLabel(group)],
    ...refused.slice(0, 4),
    ...(refused.length > 4 ? [["", `and ${refused.length - 4} more pairs`]] : []),
  ];
}
function groupLabel(group) {
  const members = store.groups.ops[group];
  return `${members.length} ops: ${members.slice(0, 8).map((index) => `#${index}`).join(", ")}`
    + (members.length > 8 ? " ..." : "");
}
const refusalsByOp = (() => {
  const found = new Map();
  const { producer, consumer } = store.refusals;
  producer.forEach((_, r) => [producer[r], consumer[r]].forEach((index) => {
    if (!found.has(index)) found.set(index, []);
    found.get(index).push(r);
  }));
  return found;
})();
function refusalsOf(row) {
  const { producer, consumer, reason, detail } = store.refusals;
  return (refusalsByOp.get(ops.index[row]) || []).map((r) => {
    const other = producer[r] === ops.index[row] ? consumer[r] : producer[r];
    return [`not with #${other}`, `${strings[reason[r]]}: ${strings[detail[r]]}`];
  });
}
function showDetails(row) {
  const box = byId("details");
  if (row < 0) {
    box.replaceChildren(element("span", { class: "dim" }, "Choose a row to see its floors, its FLOP and bytes" + (meta.planned ? ", and why it got its verdict." : ".")));
    return;
  }
  const title = element("h3", {}, `#${ops.index[row]} ${wordOf(row, "name")} `,
    element("span", { class: "tag" }, wordOf(row, "phase")), " ",
    element("span", { class: "tag" }, `${wordOf(row, "bound")}-bound`.replace("unpriced-bound", "unpriced")));
  const parts = element("div", { class: "parts" }, facts(workFacts(row)), facts(floorFacts(ops.work[row])));
  const verdict = verdictFacts(row);
  if (verdict.length) parts.append(facts(verdict));
  box.replaceChildren(title, parts);
}
