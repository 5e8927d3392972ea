// Light or dark: the system's wish until the reader chooses.
const themeListeners = [];
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return !printing && (chosen ? chosen === "dark" : systemDark.matches);
}
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
function colourOf(word) { return colour(COLOURS[word] || "--leave"); }
// A colour laid thinly over another, for areas that carry text.
function mixed(over, under, part) {
  const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [a, b] = [parse(over), parse(full(under))];
  return `rgb(${a.map((value, i) => Math.round(part * value + (1 - part) * b[i])).join(",")})`;
}
function full(hex) {
  return hex.length === 4 ? `#${[...hex.slice(1)].map((c) => c + c).join("")}` : hex;
}
function plotFont() {
  return { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--dim") };
}
// Paper is narrower than most windows; on the screen a chart fills its card.
function printedSize() { return printing ? { width: 680, autosize: false } : { autosize: true }; }
function onTheme(listener) { themeListeners.push(listener); }
function announceTheme() {
  const button = byId("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  button.setAttribute("aria-pressed", String(isDark()));
  themeListeners.forEach((listener) => listener());
}
function startTheme() {
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    announceTheme();
  });
  systemDark.addEventListener("change", announceTheme);
  announceTheme();
}
