// The log-log roofline: roofs of matrix and vector work, and every op as a point.
const roofline = { by: "bound", drawn: false, left: 0 };
const CAN_WEBGL = Boolean(document.createElement("canvas").getContext("webgl"));
const LOWEST = 1e-3; // of the bandwidth at the left edge
const LARGEST = 34; // px across, of the op with the longest least time

const LEAST_INTENSITY = 0.01; // FLOP/byte; ops below stand at the left edge

// Where a work stands: [FLOP/byte, FLOP/s]. With hardly a FLOP it stands at the left edge, as high
// as the bandwidth it reaches puts it there; nothing stands below the lower edge.
function pointOf(w, left) {
  const time = work.least_s[w];
  if (!time) return null;
  const lowest = left * meta.bandwidth * LOWEST;
  if (workIntensity[w] >= LEAST_INTENSITY) return [workIntensity[w], Math.max(lowest, workFlops[w] / time)];
  if (workPriced[w] && workFlops[w] && !workBytes[w]) return null; // no place on the axis
  return workBytes[w] ? [left, Math.max(lowest, left * workBytes[w] / time)] : null;
}
function leftEdge() { return LEAST_INTENSITY / 3; }
function ridgeOf(peak) { return peak / meta.bandwidth; }

// The roofs that ops of this step work under.
function roofs() {
  const matrix = new Set();
  const vector = new Set();
  for (let w = 0; w < workCount; w += 1) {
    if (work.matrix_flops[w]) matrix.add(strings[work.math[w]]);
    if (work.vector_flops[w]) vector.add(strings[work.vector_math[w]]);
  }
  const named = (keys, kind) => [...keys].filter((key) => meta.peaks[key])
    .map((key) => ({ name: `${key} ${kind}`, peak: meta.peaks[key], kind }));
  const found = [...named(matrix, "matrix"), ...named(vector, "vector")];
  if (found.length) return found.sort((a, b) => b.peak - a.peak);
  return Object.entries(meta.peaks).slice(0, 1).map(([key, peak]) => ({ name: key, peak, kind: "matrix" }));
}
function roofTraces(left, right) {
  return roofs().map((roof) => ({
    type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
    x: [left, ridgeOf(roof.peak), right], y: [left * meta.bandwidth, roof.peak, roof.peak],
    line: { color: colour("--ink"), width: roof.kind === "matrix" ? 1.8 : 1.2, dash: roof.kind === "matrix" ? "solid" : "dot" },
  }));
}
function pointTraces(rows, left, type) {
  const longest = work.least_s.reduce((a, b) => Math.max(a, b), 0);
  return ORDER[roofline.by].map((word) => {
    const mine = rows.filter((row) => wordOf(row, roofline.by) === word && pointOf(ops.work[row], left));
    mine.sort((a, b) => least[b] - least[a]);
    const points = mine.map((row) => pointOf(ops.work[row], left));
    return {
      type, mode: "markers", name: `${word} (${count(mine.length)})`, hoverinfo: "none",
      x: points.map((p) => p[0]), y: points.map((p) => p[1]), customdata: mine,
      marker: {
        color: colourOf(word), opacity: 0.75, line: { color: colour("--card"), width: 1 },
        size: mine.map((row) => Math.max(6, LARGEST * Math.sqrt(least[row] / longest))),
      },
    };
  }).filter((trace) => trace.x.length);
}
function pickedTrace(left) {
  const row = selection.picked;
  const point = row < 0 || printing ? null : pointOf(ops.work[row], left);
  return {
    type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false,
    x: point ? [point[0]] : [], y: point ? [point[1]] : [],
    marker: { symbol: "circle-open", size: 22, color: colour("--ink"), line: { width: 2.5, color: colour("--ink") } },
  };
}
function decadeTicks(left, right) {
  const values = [];
  for (let e = Math.ceil(Math.log10(left) + 0.6); e <= Math.log10(right); e += 1) values.push(10 ** e);
  const every = NARROW.matches ? 2 : 1;
  const word = (value) => (value >= 1e4 ? `10<sup>${Math.round(Math.log10(value))}</sup>` : String(Number(value.toPrecision(1))));
  const shown = values.map((value) => (Math.round(Math.log10(value)) % every === 0 ? word(value) : ""));
  return { tickvals: [left, ...values], ticktext: [`<${LEAST_INTENSITY}`.replace("<", "&lt;"), ...shown] };
}
function rooflineLayout(left, right, points) {
  const peaks = roofs();
  const axis = { type: "log", gridcolor: colour("--line"), zeroline: false, linecolor: colour("--line"), fixedrange: false };
  const low = Math.log10(points.reduce((a, p) => Math.min(a, p[1]), left * meta.bandwidth)) - 0.35;
  const high = Math.log10(peaks[0].peak) + 0.8;
  const narrow = NARROW.matches && !printing;
  const labels = peaks.map((roof, i) => ({
    xref: "paper", x: 1, y: Math.log10(roof.peak), xanchor: "right", showarrow: false, bgcolor: colour("--card"),
    yanchor: i ? "top" : "bottom", yshift: i ? -3 : 18,
    text: plain(`${roof.name} ${scaled(roof.peak, "FLOP/s")}${narrow ? "" : `, ridge ${intensity(ridgeOf(roof.peak))} FLOP/B`}`),
    font: { size: narrow ? 10.5 : 12, color: colour("--ink") },
  }));
  const ridges = peaks.map((roof) => ({
    type: "line", x0: ridgeOf(roof.peak), x1: ridgeOf(roof.peak), y0: 0, y1: 1, yref: "paper", layer: "below",
    line: { color: colour("--dim"), width: 1, dash: "dot" },
  }));
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: plotFont(),
    ...printedSize(), margin: narrow ? { l: 54, r: 10, t: 54, b: 46 } : { l: 76, r: 20, t: 44, b: 52 },
    xaxis: { ...axis, ...decadeTicks(left, right), range: [Math.log10(left) - 0.25, Math.log10(right)], title: { text: "arithmetic intensity, FLOP/byte", standoff: 8 } },
    yaxis: { ...axis, range: [low, high], dtick: 1, tickformat: "~s", title: { text: narrow ? "" : "predicted FLOP/s at the least time", standoff: 6 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemsizing: "constant", font: { size: 12.5, color: colour("--ink") } },
    annotations: [...labels, {
      x: 0, y: Math.log10(meta.bandwidth), xanchor: "left", yanchor: "top", xshift: 12, yshift: -6, showarrow: false, bgcolor: colour("--card"),
      text: plain(`memory ${scaled(meta.bandwidth, "B/s")}`), font: { size: narrow ? 10.5 : 12, color: colour("--ink") },
    }],
    shapes: ridges, modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--dim"), activecolor: colour("--accent") }, hovermode: "closest", hoverdistance: 24, dragmode: "pan",
  };
}
// All ops in sight; one of each kind where the printer needs shapes instead of a canvas.
function drawRoofline() {
  const left = leftEdge();
  const known = workIntensity.filter((value) => value);
  const right = 10 * known.reduce((a, b) => Math.max(a, b), 2 * ridgeOf(roofs()[0].peak));
  const first = new Map();
  for (let row = 0; row < opCount; row += 1) if (!first.has(ops.work[row])) first.set(ops.work[row], row);
  const rows = printing ? [...first.values()] : [...ops.index.keys()];
  const points = [...first.keys()].map((w) => pointOf(w, left)).filter(Boolean);
  const type = CAN_WEBGL && !printing ? "scattergl" : "scatter";
  const traces = [...roofTraces(left, right), ...pointTraces(rows, left, type), pickedTrace(left)];
  const config = { displaylogo: false, responsive: true, displayModeBar: NARROW.matches ? false : "hover", scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  roofline.left = left;
  return Plotly.react("roofline-plot", traces, rooflineLayout(left, right, points), config);
}
function rowAt(event) {
  const point = event.points.find((p) => p.customdata !== undefined);
  return point ? point.customdata : -1;
}
function showAlike(row) {
  const w = ops.work[row];
  const label = `${wordOf(row, "name")}, ${wordOf(row, "phase")}, ${wordOf(row, "shapes")}`;
  setScope(label, (other) => ops.work[other] === w);
  pick(row);
  const shown = ops.work.filter((other) => other === w).length;
  const jump = element("a", { href: "#ops" }, "Go to the table");
  const clear = element("button", { type: "button", class: "link" }, "Show all ops");
  clear.addEventListener("click", () => { setScope("", null); });
  byId("roofline-picked").replaceChildren(
    element("span", {}, `The table shows ${plural(shown, "op")} like #${ops.index[row]} ${wordOf(row, "name")}.`), jump, clear);
}
function startRoofline() {
  const plot = byId("roofline-plot");
  drawRoofline();
  plot.on("plotly_hover", (event) => {
    const row = rowAt(event);
    if (row >= 0) showTooltip(event.event, ...opTooltip(row));
  });
  plot.on("plotly_unhover", hideTooltip);
  plot.on("plotly_click", (event) => { const row = rowAt(event); if (row >= 0) showAlike(row); });
  plot.addEventListener("mouseleave", hideTooltip);
  segmented("colour-by", (by) => { roofline.by = by; drawRoofline(); });
  onPick(() => {
    const { x, y } = pickedTrace(roofline.left);
    Plotly.restyle(plot, { x: [x], y: [y] }, [plot.data.length - 1]);
  });
  onSelection(() => { if (!selection.scope) byId("roofline-picked").replaceChildren(); });
  onTheme(drawRoofline);
  NARROW.addEventListener("change", drawRoofline);
}
// A group of buttons of which one is pressed.
function segmented(id, choose) {
  const buttons = [...byId(id).querySelectorAll("button")];
  buttons.forEach((button) => button.addEventListener("click", () => {
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    choose(button.dataset.by);
  }));
}
