// Least time by module, as areas within areas. A layer's number stays with the list it counts.
const partsOf = (() => {
  const known = new Map();
  return (path) => {
    if (!known.has(path)) known.set(path, path.split(/\.(?!(?:\d+|\*)(?:\.|$))/));
    return known.get(path);
  };
})();
function pathOf(row) {
  const text = ops.module[row];
  const path = byId("merge-layers").checked ? modulePattern(text) : strings[text];
  return path ? partsOf(path) : ["(no module)"];
}
// Nodes of the tree by their whole path; "" is the step.
function moduleTree() {
  const nodes = new Map([["", { label: "step", parent: null, time: 0, ops: 0, parts: {} }]]);
  for (let row = 0; row < opCount; row += 1) {
    let path = "";
    const bound = wordOf(row, "bound");
    for (const part of ["", ...pathOf(row)]) {
      const parent = path;
      path = part && parent ? `${parent}.${part}` : part || parent;
      if (!nodes.has(path)) nodes.set(path, { label: part, parent, time: 0, ops: 0, parts: {} });
      const node = nodes.get(path);
      node.time += least[row];
      node.ops += 1;
      node.parts[bound] = (node.parts[bound] || 0) + least[row];
    }
  }
  return nodes;
}
function longestPart(parts) {
  return Object.entries(parts).reduce((a, b) => (b[1] > a[1] ? b : a))[0];
}
function drawTreemap() {
  const nodes = [...moduleTree().entries()];
  const card = colour("--card");
  const fill = ([path, node]) => (path ? mixed(colourOf(longestPart(node.parts)), card, isDark() ? 0.42 : 0.3) : card);
  const trace = {
    type: "treemap", branchvalues: "total", maxdepth: 5, sort: true, tiling: { pad: 2 }, pathbar: { visible: true, thickness: 22, textfont: { color: colour("--ink") } },
    ids: nodes.map(([path]) => path || "step"), labels: nodes.map(([, node]) => plain(node.label)),
    parents: nodes.map(([path, node]) => (path ? node.parent || "step" : "")), values: nodes.map(([, node]) => node.time),
    text: nodes.map(([, node]) => `${seconds(node.time)}, ${percent(shareOf(node.time))}`),
    customdata: nodes.map(([path, node]) => [path, node.ops]), textinfo: "label+text", hoverinfo: "none",
    textfont: { color: colour("--ink"), size: 12.5 },
    marker: { colors: nodes.map(fill), line: { width: 1, color: card }, cornerradius: 3, pad: { t: 22, l: 4, r: 4, b: 4 } },
  };
  const layout = { ...printedSize(), margin: { l: 4, r: 4, t: 4, b: 4 }, paper_bgcolor: "rgba(0,0,0,0)", font: plotFont(), treemapcolorway: [card], uniformtext: { minsize: 10, mode: "hide" } };
  return Plotly.react("treemap-plot", [trace], layout, { displayModeBar: false, responsive: true });
}
function treemapTooltip(path, point) {
  return [element("b", {}, path || "step"), facts([
    ["least time", point.text], ["ops", count(point.customdata[1])], ["mostly", longestPart(moduleTree().get(path).parts)],
  ])];
}
function inModule(path) {
  const parts = partsOf(path);
  return (row) => { const own = pathOf(row); return parts.every((part, i) => own[i] === part); };
}
function startTreemap() {
  const plot = byId("treemap-plot");
  drawTreemap();
  plot.on("plotly_hover", (event) => {
    const point = event.points[0];
    showTooltip(event.event, ...treemapTooltip(point.customdata[0], point));
  });
  plot.on("plotly_unhover", hideTooltip);
  plot.addEventListener("mouseleave", hideTooltip);
  plot.on("plotly_treemapclick", (event) => {
    const [path] = event.points[0].customdata;
    setScope(`module ${path}`, path ? inModule(path) : null);
  });
  byId("merge-layers").addEventListener("change", () => { drawTreemap(); drawBars(); });
  onTheme(drawTreemap);
}
