// Numbers to text as the command line writes them, and elements out of text.
const DECIMAL = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const SMALL = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

function digits(value) {
  if (value === 0) return "0";
  const decimals = Math.min(Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value)))), 20);
  const text = value.toFixed(decimals);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}
function rounded(value) { return Number(value.toPrecision(4)); }
function scaled(value, unit) {
  for (const [factor, prefix] of DECIMAL) {
    if (rounded(Math.abs(value)) >= factor) return `${digits(value / factor)} ${prefix}${unit}`;
  }
  return `${digits(value)} ${unit}`;
}
function seconds(value) {
  if (value === 0) return "0 s";
  for (const [factor, unit] of SMALL) {
    if (rounded(Math.abs(value)) >= factor) return `${digits(value / factor)} ${unit}`;
  }
  return `${digits(value / 1e-9)} ns`;
}
function percent(part) {
  const value = 100 * part;
  if (value > 0 && value < 0.01) return "<0.01 %";
  const text = value.toFixed(value >= 1 ? 1 : 2);
  return value < 100 && text === "100.0" ? ">99.9 %" : `${text} %`;
}
function count(value) { return value.toLocaleString("en-US"); }
function intensity(value) { return value < 10000 ? digits(value) : count(Math.round(value)); }
function plural(number, word) { return `${count(number)} ${word}${number === 1 ? "" : "s"}`; }

// An element; every text becomes a text node, so no name can be read as markup.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.entries(value).forEach(([k, v]) => made.style.setProperty(k, v));
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}
function facts(pairs) {
  const list = element("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    list.append(element("dt", {}, name), element("dd", {}, ...[value].flat()));
  }
  return list;
}
// Plotly reads a few tags in its labels.
function plain(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
function byId(id) { return document.getElementById(id); }
