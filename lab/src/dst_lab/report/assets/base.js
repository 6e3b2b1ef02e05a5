"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
document.documentElement.classList.add("js");

/* An element with attributes and children; text is only ever set as text. */
function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "rect", "path", "text", "tspan", "circle", "line", "title"].includes(name);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("aria-")) element.setAttribute(key, String(value));
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/* From here on numbers are written with an exponent. */
const HUGE = 1e9;

/* To so many digits, without its zeros; with an exponent where it has more before the point. */
function rounded(value, count) {
  const text = value.toPrecision(count);
  return text.includes("e") ? Number(text).toExponential() : String(Number(text));
}

/* To so many digits, with its zeros: 0.3270 beside 0.3197. */
function digits(value, count = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 1e-4) return value.toExponential(1);
  if (Math.abs(value) >= HUGE) return rounded(value, count);
  return value.toFixed(Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value)))));
}

/* Mean and standard deviation, to the second digit of the latter and at least four of the mean. */
function plusMinus(mean, sd, n) {
  if (!sd) return digits(mean) + (sd === 0 && n > 1 ? " ± 0" : "");
  if (Math.max(Math.abs(mean), sd) >= HUGE) return `${rounded(mean, 4)} ± ${rounded(sd, 2)}`;
  const ofWidth = 1 - Math.floor(Math.log10(sd)), ofMean = mean ? 3 - Math.floor(Math.log10(Math.abs(mean))) : 0;
  const decimals = Math.max(0, ofWidth, Math.min(ofMean, ofWidth + 2));
  return `${mean.toFixed(decimals)} ± ${sd.toFixed(decimals)}`;
}

function tau(letter) { return [make("i", {}, "τ"), make("sub", {}, letter)]; }
/* Inside SVG there is no <sub>. */
function drawnTau(letter) { return [make("tspan", { "font-style": "italic" }, "τ"), make("tspan", { dy: 3, "font-size": 9 }, letter)]; }

const RAMP = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const below = Math.min(Math.floor(place), RAMP.length - 2);
  const mix = [1, 3, 5].map((i) => {
    const [a, b] = [RAMP[below], RAMP[below + 1]].map((hex) => parseInt(hex.slice(i, i + 2), 16));
    return Math.round(a + (b - a) * (place - below));
  });
  return `rgb(${mix.join(",")})`;
}

/* Something to read beside the pointer, or beside what has the focus. */
const tip = document.getElementById("tip");
function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y - box.height - 14 < 4 ? y + 18 : y - box.height - 14}px`;
}
