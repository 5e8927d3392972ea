// The page's data: columns of numbers that point into one table of texts.
const store = JSON.parse(byId("store").textContent);
const meta = store.meta;
const strings = store.strings;
const rank = (() => { // place of each text in alphabetical order, to sort by comparing numbers
  const order = strings.map((_, i) => i);
  const collator = new Intl.Collator("en", { numeric: true });
  order.sort((a, b) => collator.compare(strings[a], strings[b]));
  const places = new Uint32Array(strings.length);
  order.forEach((text, place) => { places[text] = place; });
  return places;
})();

const work = store.work;
const workCount = work.name.length;
work.least_s = work.launch_s.map((launch, w) =>
  Math.max(launch, work.matrix_s[w], work.vector_s[w], work.hbm_s[w]));
const workFlops = work.matrix_flops.map((matrix, w) => matrix + work.vector_flops[w]);
const workBytes = work.read_bytes.map((read, w) => read + work.write_bytes[w]);
const workPriced = work.bound.map((bound) => strings[bound] !== "unpriced");
const workIntensity = workFlops.map((flops, w) =>
  workPriced[w] && workBytes[w] ? flops / workBytes[w] : null);

const ops = store.ops;
const opCount = ops.index.length;
const least = Float64Array.from(ops.work, (w) => work.least_s[w]);
const rowOfIndex = new Map(ops.index.map((index, row) => [index, row]));
ops.group = new Int32Array(opCount).fill(-1);
store.groups.ops.forEach((members, group) => members.forEach((index) => {
  if (rowOfIndex.has(index)) ops.group[rowOfIndex.get(index)] = group;
}));

const ORDER = {
  bound: ["compute", "memory", "launch", "unpriced"],
  action: ["HAND-WRITE", "AUTO-FUSE", "USE LIBRARY", "LEAVE IT"],
  phase: ["forward", "backward", "optimizer"],
};
const COLOURS = {
  compute: "--compute", memory: "--memory", launch: "--launch", unpriced: "--unpriced",
  "HAND-WRITE": "--hand", "AUTO-FUSE": "--fuse", "USE LIBRARY": "--library", "LEAVE IT": "--leave",
  forward: "--forward", backward: "--backward", optimizer: "--optimizer",
};

// The number of a row's text in one of the columns that can be shown, filtered or searched.
const textOf = {
  name: (row) => work.name[ops.work[row]],
  aten: (row) => work.aten[ops.work[row]],
  phase: (row) => work.phase[ops.work[row]],
  shapes: (row) => work.shapes[ops.work[row]],
  bound: (row) => work.bound[ops.work[row]],
  module: (row) => ops.module[row],
  line: (row) => ops.line[row],
  action: (row) => (ops.verdict[row] < 0 ? -1 : store.verdicts.action[ops.verdict[row]]),
  reason: (row) => (ops.verdict[row] < 0 ? -1 : store.verdicts.reason[ops.verdict[row]]),
};
function wordOf(row, column) {
  const number = textOf[column](row);
  return number < 0 ? "" : strings[number];
}
function stakeOf(row) {
  return ops.verdict[row] < 0 ? 0 : store.verdicts.at_stake_s[ops.verdict[row]];
}
function shareOf(time) { return meta.least_s ? time / meta.least_s : 0; }

// A module's path with the number of every layer starred.
const modulePattern = (() => {
  const known = new Map();
  return (text) => {
    if (!known.has(text)) {
      const starred = strings[text].split(".").map((part) => (/^\d+$/.test(part) ? "*" : part));
      known.set(text, starred.join("."));
    }
    return known.get(text);
  };
})();

// Sums of least time by a key of the row, the longest first, with its parts by bound.
function timesBy(keyOf) {
  const groups = new Map();
  for (let row = 0; row < opCount; row += 1) {
    const key = keyOf(row);
    let group = groups.get(key);
    if (!group) groups.set(key, group = { key, time: 0, ops: 0, parts: {} });
    const bound = wordOf(row, "bound");
    group.time += least[row];
    group.ops += 1;
    group.parts[bound] = (group.parts[bound] || 0) + least[row];
  }
  return [...groups.values()].sort((a, b) => b.time - a.time);
}
