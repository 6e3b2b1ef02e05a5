"use strict";

/* An element with attributes and children; text is only ever set as text. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/* A measured number to so many digits, with its zeros: 0.3270 next to 0.3197. */
function digits(value, count) {
  if (value === 0) return "0";
  if (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9) return value.toExponential(1);
  return value.toFixed(Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value)))));
}

/* The table of runs: filtered by words, sorted by a column; a run opens to its config and its command. */
(function table() {
  const root = document.getElementById("table");
  const { columns, runs, settings, claims, metrics } = JSON.parse(document.getElementById("data").textContent);
  const STEP = 100;
  const state = { words: "", claim: null, sort: null, down: false, limit: STEP, open: new Set() };
  const all = runs.map((_, i) => i);
  const text = runs.map(({ id, setting, cells, plan, status, seed }) => [id, ...cells, plan, status, `seed=${seed}`, settings[setting].words].join(" ").toLowerCase().split(" "));
  let found = all;

  const body = make("tbody");
  const count = make("div", { class: "count", "aria-live": "polite" });
  const more = make("button", { type: "button", onclick: () => { state.limit += 4 * STEP; draw(); } });
  const heads = columns.map(({ title, style }, c) => make("th", { class: style, scope: "col", "aria-sort": "none" },
    make("button", { type: "button", onclick: () => { state.down = state.sort === c && !state.down; state.sort = c; search(); } }, title)));
  const words = make("input", { type: "search", id: "run-search", autocomplete: "off", oninput: () => { state.words = words.value; search(); } });
  root.replaceChildren(
    make("label", { class: "filter" }, "Runs with all of these words, such as a task, an estimator, an id, tau_b=0.5 or seed=1000", words), count,
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All runs" },
      make("table", { class: "runs" }, make("thead", {}, make("tr", {}, make("th", {}, make("span", { class: "hidden" }, "Details")), ...heads)), body)),
    more);

  /* A field=value is the whole of a word; anything else may be a part of one. */
  function fits(i, word) { return text[i].some((one) => (word.includes("=") ? one === word : one.includes(word))); }

  function search() {
    const asked = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    found = (state.claim ? state.claim.runs : all).filter((i) => asked.every((word) => fits(i, word)));
    if (state.sort !== null) {
      const sign = state.down ? -1 : 1, value = (i) => runs[i].cells[state.sort];
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      /* What has no value comes last, whichever way. */
      found = [...found].sort((i, j) => {
        const [a, b] = [value(i), value(j)];
        return a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b) || i - j;
      });
    }
    heads.forEach((head, c) => head.setAttribute("aria-sort", c !== state.sort ? "none" : state.down ? "descending" : "ascending"));
    state.limit = STEP;
    draw();
  }

  function show(value, count) { return value === null ? "–" : count && typeof value === "number" ? digits(value, count) : String(value); }

  function row(i) {
    const { id, cells } = runs[i], open = state.open.has(i);
    const toggle = make("button", { type: "button", class: "open", "aria-expanded": open, "aria-label": `Details of run ${id}`, onclick: () => { open ? state.open.delete(i) : state.open.add(i); draw(); body.querySelector(`[data-run="${id}"] .open`).focus(); } }, open ? "−" : "+");
    const line = make("tr", { "data-run": id }, make("td", {}, toggle), ...columns.map(({ style, digits: count }, c) => make("td", { class: style }, show(cells[c], count))));
    return open ? [line, detail(i)] : [line];
  }

  function detail(i) {
    const { id, setting, seed, status, plan } = runs[i], { facts, command } = settings[setting];
    const last = Object.entries(metrics).filter(([, values]) => values[i] !== null).map(([name, values]) => [`last ${name.replaceAll("_", " ")}`, show(values[i], 5)]);
    const list = Object.entries({ run: id, status, plan, ...facts, seed, ...Object.fromEntries(last) });
    return make("tr", { class: "detail" }, make("td", { colspan: columns.length + 1 },
      ...(command ? [make("code", {}, command.replace(/--seeds 0,/, `--seeds ${seed},`))] : []),
      make("dl", {}, ...list.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))))));
  }

  function draw() {
    body.replaceChildren(...found.slice(0, state.limit).flatMap(row));
    const format = (value) => value.toLocaleString("en");
    count.replaceChildren(`${format(found.length)} of ${format(all.length)} runs`,
      ...(state.claim ? [make("button", { type: "button", onclick: () => { state.claim = null; search(); } }, `only those behind “${state.claim.label}” ×`)] : []));
    more.hidden = found.length <= state.limit;
    more.textContent = `Show more (${format(found.length - state.limit)} left)`;
  }

  for (const button of document.querySelectorAll("button[data-claim]")) {
    button.addEventListener("click", () => {
      state.claim = { label: button.dataset.label, runs: claims[Number(button.dataset.claim)] };
      search();
      document.getElementById("runs").scrollIntoView();
      words.focus({ preventScroll: true });
    });
  }
  search();
})();

/* A verdict that is linked to is opened; on paper all are. */
(function unfolding() {
  const unfold = () => {
    const target = location.hash.startsWith("#verdict-") && document.getElementById(location.hash.slice(1));
    if (target) { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details.verdict")) one.open = true; });
})();
