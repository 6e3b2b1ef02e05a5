(function table() {
  const root = document.getElementById("table");
  const { runs, settings, metrics } = DATA;
  const plan = (i) => DATA.plans[runs.plan[i]];
  const setting = (i) => settings[runs.setting[i]];
  const metric = (name, factor = 1) => (i) => (metrics[name] && metrics[name][i] !== null ? factor * metrics[name][i] : null);
  const COLUMNS = [
    ["Task", (i) => setting(i).task, "less"], ["Estimator", (i) => setting(i).estimator],
    ["τf", (i) => setting(i).taus[0], "num"], ["τb", (i) => setting(i).taus[1], "num"], ["lr", (i) => setting(i).lr, "num less"], ["Seed", (i) => runs.seed[i], "num"],
    ["Plan", plan, "less"], ["Status", (i) => runs.status[i], "less"], ["Lowest val. loss", (i) => runs.best[i], "num"],
    ["Last val. accuracy, %", metric("validation_accuracy", 100), "num less"], ["Last test loss", metric("test_loss"), "num less"], ["Last test accuracy, %", metric("test_accuracy", 100), "num less"],
  ];
  const STEP = 50;
  const state = { words: "", task: "", estimator: "", claim: null, sort: null, down: false, limit: STEP, open: new Set() };
  const all = runs.id.map((_, i) => i);
  const text = all.map((i) => {
    const { task, estimator, words, taus, tau, lr } = setting(i);
    return [runs.id[i], task, estimator, words, tau === null ? "" : `tau=${tau}`, `tau_f=${taus[0]}`, `tau_b=${taus[1]}`, taus[2], `lr=${lr}`, `seed=${runs.seed[i]}`, plan(i), runs.status[i]].join(" ").toLowerCase();
  });
  let found = all;
  /* An example that finds something in this very store. */
  const shown = all.find((i) => setting(i).tau !== null) ?? 0;
  const example = all.length ? `${setting(shown).words.split(" ")[1]}${setting(shown).tau === null ? "" : ` tau=${setting(shown).tau}`} seed=${runs.seed[shown]}` : "";

  const body = make("tbody");
  const count = make("div", { class: "count", "aria-live": "polite" });
  const more = make("button", { type: "button", onclick: () => { state.limit += 4 * STEP; draw(); } });
  const heads = COLUMNS.map(([title, , style], c) => make("th", { class: style || "", scope: "col", "aria-sort": "none" },
    make("button", { type: "button", onclick: () => { state.down = state.sort === c && !state.down; state.sort = c; search(); } }, title)));
  const words = make("input", { type: "search", id: "run-search", placeholder: example && `such as: ${example}`, autocomplete: "off", oninput: () => { state.words = words.value; search(); } });
  const chooser = (title, name, values) => make("label", {}, title, make("select", { id: `run-${name}`, onchange: (event) => { state[name] = event.target.value; search(); } },
    make("option", { value: "" }, "all"), ...[...new Set(values)].map((value) => make("option", { value }, value))));
  root.replaceChildren(
    make("div", { class: "controls" }, make("label", { class: "wide" }, "Search: words that all must be there", words),
      chooser("Task", "task", settings.map((one) => one.task)), chooser("Estimator", "estimator", settings.map((one) => one.estimator))),
    count,
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All runs" }, make("table", { class: "runs" }, make("thead", {}, make("tr", {}, make("th", {}, make("span", { class: "hidden" }, "Details")), ...heads)), body)),
    more);

  /* tau=0.50 asks for tau=0.5, tau_f=1.0 for tau_f=1. */
  function plain(word) {
    const [name, value] = word.split("=");
    return value && Number.isFinite(Number(value)) ? `${name}=${Number(value)}` : word;
  }

  function search() {
    const wanted = state.words.toLowerCase().split(/\s+/).filter(Boolean).map(plain);
    /* tau_b=0.5 is not tau_b=0.55: what has a sign must end where a word ends. */
    const fits = (line, word) => (word.includes("=") ? ` ${line} `.includes(` ${word} `) : line.includes(word));
    found = (state.claim ? state.claim.runs : all).filter((i) =>
      (!state.task || setting(i).task === state.task) && (!state.estimator || setting(i).estimator === state.estimator) && wanted.every((word) => fits(text[i], word)));
    if (state.sort !== null) {
      const value = COLUMNS[state.sort][1], sign = state.down ? -1 : 1;
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

  function show(value) { return value === null || value === undefined ? "–" : typeof value === "number" ? number(value) : value; }

  function row(i) {
    const open = state.open.has(i);
    const toggle = make("button", { type: "button", class: "open", "aria-expanded": open, "aria-label": `Details of run ${runs.id[i]}`, onclick: () => { open ? state.open.delete(i) : state.open.add(i); draw(); body.querySelector(`[data-run="${runs.id[i]}"] .open`).focus(); } }, open ? "−" : "+");
    const line = make("tr", { "data-run": runs.id[i] }, make("td", {}, toggle), ...COLUMNS.map(([title, value, style]) => make("td", { class: style || "" }, show(value(i)), title === "Estimator" ? make("small", {}, setting(i).task) : null)));
    return open ? [line, detail(i)] : [line];
  }

  function detail(i) {
    const { config, command, taus } = setting(i);
    const facts = { run: runs.id[i], status: runs.status[i], plan: plan(i), ...(taus[2] ? { schedule: taus[2] } : {}), ...config };
    const last = Object.entries(metrics).filter(([, values]) => values[i] !== null).map(([name, values]) => [`last ${name.replaceAll("_", " ")}`, show(values[i])]);
    const list = [...Object.entries(facts), ...last].map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, Array.isArray(value) ? value.join(", ") : String(value))));
    return make("tr", { class: "detail" }, make("td", { colspan: COLUMNS.length + 1 }, command ? make("code", {}, command.replace(/--seeds 0,/, `--seeds ${runs.seed[i]},`)) : null, make("dl", {}, ...list)));
  }

  function draw() {
    body.replaceChildren(...found.slice(0, state.limit).flatMap(row));
    const format = (value) => value.toLocaleString("en");
    count.replaceChildren(`${format(found.length)} of ${format(all.length)} runs`,
      state.claim ? make("button", { type: "button", onclick: () => { state.claim = null; search(); } }, `only those behind ${state.claim.label} ×`) : "");
    more.hidden = found.length <= state.limit;
    more.textContent = `Show more (${format(found.length - state.limit)} left)`;
  }

  for (const button of document.querySelectorAll("button[data-claim]")) {
    button.addEventListener("click", () => {
      const listed = new Set(DATA.claims[Number(button.dataset.claim)]);
      state.claim = { label: button.dataset.label, runs: all.filter((i) => listed.has(i)) };
      search();
      document.getElementById("runs").scrollIntoView();
      words.focus({ preventScroll: true });
    });
  }
  /* A verdict that is linked to is opened. */
  const unfold = () => { const there = location.hash.startsWith("#verdict-") && document.getElementById(location.hash.slice(1)); if (there) { there.open = true; there.scrollIntoView(); there.querySelector("summary").focus({ preventScroll: true }); } };
  addEventListener("hashchange", unfold);
  unfold();
  /* What is folded on a screen is not lost on paper. */
  let folded = [];
  addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details.verdict:not([open])")]; folded.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => { folded.forEach((one) => { one.open = false; }); });
  search();
})();
