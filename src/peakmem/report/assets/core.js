const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

/** Makes an element. Texts go in as text, never as markup: names in a trace are not ours. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

function sizeParts(bytes, digits = 2) {
  for (const [unit, factor] of UNITS) {
    if (Math.abs(bytes) >= factor) {
      return [(bytes / factor).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }), unit];
    }
  }
  return [String(bytes), "B"];
}
const size = (bytes, digits = 2) => sizeParts(bytes, digits).join("\u00a0");
const exact = (bytes) => bytes.toLocaleString("en-US") + "\u00a0B";
const count = (number) => number.toLocaleString("en-US");
const percent = (part, whole) => (whole ? ((100 * part) / whole).toFixed(part / whole < 0.0995 ? 1 : 0) + "%" : "");

function duration(us) {
  if (us >= 1e6) return (us / 1e6).toFixed(2) + " s";
  if (us >= 1e3) return (us / 1e3).toFixed(2) + " ms";
  return us + " µs";
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const groupVariable = (group) => (group >= 0 ? `--c-${DATA.groups[group].key}` : "--c-other");
const groupCss = (group) => `var(${groupVariable(group)})`;
const dot = (background, hatch = false) => make("i", { class: hatch ? "dot hatch" : "dot", style: { background: hatch ? undefined : background } });

const redraws = [];
/** Draws now, and again when the theme or the width changes. */
function drawn(draw) {
  redraws.push(draw);
  draw();
}
const redraw = () => redraws.forEach((draw) => draw());

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "☀" : "☾";
  redraw();
}
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
let themeChosen = false;
$("theme").addEventListener("click", () => {
  themeChosen = true;
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});
prefersDark.addEventListener("change", () => themeChosen || setTheme(prefersDark.matches ? "dark" : "light"));
setTheme(prefersDark.matches ? "dark" : "light");
let resizing = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(redraw);
});

/** Prepares a canvas for its size on the screen and returns its context, measured in CSS pixels. */
function context2d(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  if (height) canvas.style.height = height + "px";
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return [context, width, canvas.clientHeight];
}

function hatchPattern(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.fillStyle = css("--stranded-fill");
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = css("--stranded");
  pen.lineWidth = 1;
  pen.beginPath();
  for (const shift of [-6, 0, 6]) {
    pen.moveTo(shift - 1, 7);
    pen.lineTo(shift + 7, -1);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

const tip = $("tip");
function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - 16 - box.width : x + 16;
  const top = Math.min(Math.max(8, y - box.height / 2), innerHeight - box.height - 8);
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = Math.max(8, top) + "px";
}
const hideTip = () => (tip.hidden = true);
const tipRow = (label, value, color) => make("div", { class: "r" }, make("span", {}, color ? dot(color) : "", label), make("span", {}, value));
const tipNote = (text) => make("div", { class: "d" }, text);

function toggles(box, options, chosen, choose) {
  const buttons = options.map(([key, title]) =>
    make("button", { type: "button", "aria-pressed": String(key === chosen), onclick: () => {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(options[index][0] === key)));
      choose(key);
    } }, title));
  box.append(...buttons);
}
