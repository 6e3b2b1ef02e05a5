(function explorer() {
  const root = document.getElementById("explorer");
  if (!root || !DATA.maps.length) return;
  root.hidden = false;
  const PINS = [["#d55e00", "6 3"], ["#009e73", "2 2"], ["#b07f00", "8 3 2 3"], ["#cc79a7", "4 4"]];
  const state = { map: 0, measure: 0, at: null, pins: [], whole: false };
  const key = (at) => at.join(",");
  const map = () => DATA.maps[state.map];
  const measure = () => map().measures[state.measure];
  const cell = (at) => measure().cells.find((one) => key(one.at) === key(at));
  const choices = make("div", { class: "choices" });
  const field = make("div");
  const legend = make("div", { class: "legend" });
  const keys = make("div", { class: "keys" });
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const chart = make("div");
  const pins = make("div", { class: "pins" });
  root.append(choices, make("div", { class: "explorer" }, make("div", {}, field, legend, keys, pictureButtons("temperature-map", () => styledDrawing(field.querySelector("svg")))),
    make("div", {}, readout, chart, pins, pictureButtons("training-curve", () => styledDrawing(chart.querySelector("svg"))))));

  function radios(title, name, texts, chosen, change) {
    return make("fieldset", {}, make("legend", {}, title), ...texts.map((text, i) =>
      make("label", {}, make("input", { type: "radio", name, value: i, checked: i === chosen, onchange: () => change(i) }), make("span", {}, text))));
  }

  function drawChoices() {
    choices.replaceChildren(
      radios("Task", "map-task", DATA.maps.map((one) => one.task), state.map, (i) => { Object.assign(state, { map: i, measure: 0, pins: [], whole: false }); start(); }),
      radios("Show", "map-measure", map().measures.map((one) => one.title), state.measure, (i) => { state.measure = i; if (!cell(state.at)) state.at = measure().cells[0].at; drawAll(); }),
      ...(measure().near === null ? [] : [radios("Range", "map-range", ["near the best", "whole"], Number(state.whole), (i) => { state.whole = Boolean(i); drawAll(); })]));
  }

  /* The values that colours tell apart: up to where outliers begin, or all. */
  function span() {
    const means = measure().cells.map((one) => one.mean).filter((value) => value !== null);
    if (!means.length) return [null, null];
    let [low, high] = [Math.min(...means), Math.max(...means)];
    if (measure().near !== null && !state.whole) {
      if (measure().low) high = measure().near;
      else low = measure().near;
    }
    return [low, high];
  }

  /* Drawn in the pixels there are, so that letters keep their size on a phone. */
  function room() { return Math.max(280, Math.min(540, field.clientWidth || 520)); }

  function axes() {
    return [0, 1].map((i) => [...new Set(measure().cells.map((one) => one.at[i]))].sort((a, b) => a - b));
  }

  function place(value, values) {
    /* Straight between cells, within their range; their middles are at i + 0.5. */
    if (value <= values[0]) return 0.5;
    for (let i = 1; i < values.length; i++)
      if (value <= values[i]) return i - 0.5 + (value - values[i - 1]) / (values[i] - values[i - 1]);
    return values.length - 0.5;
  }

  function drawMap() {
    const [forward, backward] = axes();
    /* Ticks of any length stand clear of what the axis is called. */
    const wide = room(), left = 29 + 7 * Math.max(...backward.map((b) => String(b).length)), bottom = 46, top = 6;
    const size = (wide - left - 8) / forward.length;
    const step = Math.min(Math.max(size, 26), 56, 400 / backward.length);
    const tall = top + step * backward.length + bottom;
    const [low, high] = span();
    const svg = make("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "grid", "aria-label": `${measure().title} over both temperatures, ${map().task}` });
    const x = (i) => left + i * size, y = (i) => top + (backward.length - i) * step;
    const hatched = [];
    const lines = backward.map((b, row) => {
      const line = make("g", { role: "row" });
      forward.forEach((f, column) => {
        const one = cell([f, b]);
        if (!one) return;
        if (one.diverged) hatched.push(make("rect", { "aria-hidden": true, "pointer-events": "none", class: "hatched", x: x(column), y: y(row + 1), width: size, height: step, rx: 2, fill: "url(#hatch)" }));
        const share = high > low ? (one.mean - low) / (high - low) : 0.5;
        line.append(make("rect", {
          class: "cell", role: "gridcell", x: x(column), y: y(row + 1), width: size, height: step, rx: 2,
          fill: one.mean === null ? "transparent" : colour(measure().low ? 1 - share : share), "data-at": key(one.at), tabindex: key(one.at) === key(state.at) ? 0 : -1,
          "aria-label": `forward ${f}, backward ${b}: ${one.n ? `${plusMinus(one.mean, one.sd, one.n).replace("±", "plus or minus")}, n ${one.n}` : "no run ended"}${lost(one)}`,
          onpointerenter: (event) => { look(one.at); point(event, one); }, onpointermove: (event) => point(event, one), onpointerleave: () => { tip.hidden = true; },
          onfocus: () => look(one.at), onclick: () => { look(one.at); pin(one.at); }, onkeydown: (event) => move(event, column, row, forward, backward),
        }));
      });
      return line;
    });
    svg.append(...lines.reverse(), ...hatched);
    const every = (values) => Math.max(1, Math.ceil(values.length / 10));
    /* Labels beside each other take their width; those above each other do not. */
    const across = Math.max(every(forward), Math.ceil((8 + 7 * Math.max(...forward.map((f) => String(f).length))) / size));
    forward.forEach((f, i) => { if (i % across === 0) svg.append(make("text", { class: "tick", x: x(i + 0.5), y: tall - bottom + 16, "text-anchor": "middle" }, String(f))); });
    backward.forEach((b, i) => { if (i % every(backward) === 0) svg.append(make("text", { class: "tick", x: left - 8, y: y(i + 0.5) + 4, "text-anchor": "end" }, String(b))); });
    svg.append(
      make("text", { x: left + size * forward.length / 2, y: tall - 8, "text-anchor": "middle" }, ...drawnTau("f"), make("tspan", { dy: -3 }, " draws the choice")),
      make("text", { transform: `translate(13 ${top + step * backward.length / 2}) rotate(-90)`, "text-anchor": "middle" }, ...drawnTau("b"), make("tspan", { dy: -3 }, " carries the gradient")));
    const [first, last] = [Math.max(forward[0], backward[0]), Math.min(forward.at(-1), backward.at(-1))];
    const mark = { fill: "none", "pointer-events": "none", "aria-hidden": true };
    const isInside = (at) => [forward, backward].every((values, i) => values[0] <= at[i] && at[i] <= values.at(-1));
    const equal = measure().cells.length > forward.length + backward.length && first < last;
    if (equal) {
      const points = Array.from({ length: 101 }, (_, i) => first + (last - first) * i / 100).map((t) => `${x(place(t, forward)).toFixed(1)} ${y(place(t, backward)).toFixed(1)}`);
      for (const [stroke, width, dash] of [["#000", 3, null], ["#fff", 1.4, "5 3"]])
        svg.append(make("path", { ...mark, d: `M${points.join("L")}`, stroke, "stroke-width": width, "stroke-dasharray": dash }));
    }
    for (const [at, star] of [[map().reported && map().reported.at, false], [map().ours, true]]) {
      if (!at || !isInside(at)) continue;
      const [cx, cy] = [x(place(at[0], forward)), y(place(at[1], backward))];
      for (const [stroke, width] of [["#000", star ? 2.4 : 4.4], ["#fff", star ? 0 : 2]])
        svg.append(star ? make("path", { ...mark, d: starAt(cx, cy, 8), fill: "#fff", stroke, "stroke-width": width }) : make("circle", { ...mark, cx, cy, r: 11, stroke, "stroke-width": width }));
    }
    svg.append(make("rect", { class: "cursor", width: size, height: step }), make("rect", { class: "cursor inner", width: size, height: step }));
    field.replaceChildren(svg);
    const cut = measure().near !== null && !state.whole;
    const stops = RAMP.map((_, i) => colour(measure().low ? 1 - i / 9 : i / 9)).join(",");
    const what = make("span", { class: "what" }, `${measure().title}, ${measure().unit}`);
    if (low === null) legend.replaceChildren(what, "not a number in any run");
    else legend.replaceChildren(what, make("span", {}, `${cut && !measure().low ? "≤ " : ""}${digits(low)}`), make("span", { class: "ramp", style: `background:linear-gradient(90deg,${stops})` }), make("span", {}, `${cut && measure().low ? "≥ " : ""}${digits(high)}`), measure().good ? "brighter is better" : "brighter is higher");
    const named = (sign, name, at) => (isInside(at) ? `${sign} ${name} (${at.join(", ")})` : `${name} (${at.join(", ")}) lies outside this map`);
    const ours = map().ours ? named("★", "our optimum", map().ours) : "★ our optimum: search not done";
    keys.replaceChildren(...[map().searched ? make("span", {}, ours) : null, map().reported ? make("span", {}, named("○", `${map().reported.whose} optimum`, map().reported.at)) : null, equal ? make("span", {}, "┄ diagonal: both temperatures equal") : null, hatched.length ? make("span", {}, "▨ some runs diverged, and are in no mean") : null].filter(Boolean));
  }

  function starAt(cx, cy, r) {
    const points = Array.from({ length: 10 }, (_, i) => {
      const [radius, angle] = [i % 2 ? r * 0.45 : r, Math.PI * (i / 5 - 0.5)];
      return `${(cx + radius * Math.cos(angle)).toFixed(1)} ${(cy + radius * Math.sin(angle)).toFixed(1)}`;
    });
    return `M${points.join("L")}Z`;
  }

  function move(event, column, row, forward, backward) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pin([forward[column], backward[row]]); }
    if (!way) return;
    tip.hidden = true;
    event.preventDefault();
    let [c, r] = [column + way[0], row + way[1]];
    /* Over settings that were not trained, to the next one in this direction. */
    while (forward[c] !== undefined && backward[r] !== undefined && !cell([forward[c], backward[r]])) { c += way[0]; r += way[1]; }
    if (forward[c] !== undefined && backward[r] !== undefined) field.querySelector(`[data-at="${forward[c]},${backward[r]}"]`).focus();
  }

  function lost(one) { return one.diverged ? `, ${one.diverged} diverged` : ""; }

  function value(one) { return one.n ? plusMinus(one.mean, one.sd, one.n) : "no run ended"; }

  function point(event, one) {
    showTip(event.clientX, event.clientY, make("strong", {}, value(one)), ` (n = ${one.n}${lost(one)})`, make("br"), ...tau("f"), ` = ${one.at[0]}, `, ...tau("b"), ` = ${one.at[1]}`);
  }

  function look(at) {
    state.at = at;
    const one = cell(at);
    for (const rect of field.querySelectorAll(".cell")) rect.setAttribute("tabindex", rect.dataset.at === key(at) ? 0 : -1);
    const there = field.querySelector(`[data-at="${key(at)}"]`);
    for (const cursor of field.querySelectorAll(".cursor")) for (const name of ["x", "y"]) cursor.setAttribute(name, there.getAttribute(name));
    readout.replaceChildren(...tau("f"), ` = ${at[0]}, `, ...tau("b"), ` = ${at[1]}: `, make("strong", {}, value(one)), make("br"), `${measure().title}, ${measure().unit}; mean ± standard deviation, n = ${one.n} ${map().seeds}${one.n === 1 ? "seed" : "seeds"}${lost(one)}${map().lr === null ? "" : `, learning rate ${map().lr}`}${map().held ? `, ${map().held}` : ""}`);
    drawChart();
  }

  function pin(at) {
    const known = state.pins.findIndex((one) => key(one) === key(at));
    if (known >= 0) state.pins.splice(known, 1);
    else state.pins = [...state.pins, at].slice(-PINS.length);
    drawChart();
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(10)));
    return found;
  }

  /* The frame is that of the map, not of the curve: it stays where it is while the pointer moves. As in the figures,
     what lies in the first tenth of training may be outside. */
  function frame() {
    const known = `${state.map} ${state.measure} ${state.whole}`;
    if (frames.has(known)) return frames.get(known);
    const [least, most] = span();
    const shown = measure().cells.filter((one) => one.x.length && (least === null || (one.mean !== null && one.mean >= least && one.mean <= most)));
    let [low, high, end] = [Infinity, -Infinity, 0];
    for (const { x, y, band } of shown) {
      end = Math.max(end, x.at(-1));
      for (let i = Math.floor(y.length * 0.1); i < y.length; i++) {
        if (y[i] === null) continue;
        low = Math.min(low, y[i] - (band[i] || 0));
        high = Math.max(high, y[i] + (band[i] || 0));
      }
    }
    if (low > high) [low, high] = [0, 1];
    const pad = 0.04 * (high - low) || 0.5;
    frames.set(known, [low - pad, high + pad, end || 1]);
    return frames.get(known);
  }

  function drawChart() {
    const shown = [...state.pins.map((at, i) => [at, ...PINS[i]]), [state.at, "var(--decoupled)", null]].filter(([at]) => cell(at) && cell(at).x.length);
    const wide = room(), tall = 320, left = 72, right = 10, top = 8, bottom = 44;
    const [low, high, end] = frame();
    const x = (value) => left + (wide - left - right) * value / end;
    const y = (value) => top + (tall - top - bottom) * (high - value) / (high - low);
    const svg = make("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `${measure().title} over training for ${shown.length} settings` });
    const marked = ticks(low, high, 5), decimals = Math.max(...marked.map((value) => (String(value).split(".")[1] || "").length));
    for (const value of marked) svg.append(make("line", { x1: left, x2: wide - right, y1: y(value), y2: y(value), stroke: "var(--rule)" }), make("text", { class: "tick", x: left - 7, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(decimals)));
    for (const value of ticks(0, end, 5)) svg.append(make("text", { class: "tick", x: x(value), y: tall - bottom + 17, "text-anchor": "middle" }, value >= 1e4 ? `${value / 1000}k` : String(value)));
    svg.append(
      make("path", { d: `M${left} ${top}V${tall - bottom}H${wide - right}`, fill: "none", stroke: "var(--faint)", class: "axes" }),
      make("text", { x: (left + wide - right) / 2, y: tall - 6, "text-anchor": "middle" }, `${map().x}`),
      make("text", { transform: `translate(14 ${(top + tall - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, measure().axis));
    const inner = make("svg", { x: left, y: top, width: wide - left - right, height: tall - top - bottom, viewBox: `${left} ${top} ${wide - left - right} ${tall - top - bottom}`, style: "overflow:hidden" });
    for (const [at, stroke, dash] of shown) {
      const one = cell(at);
      const points = one.x.map((value, i) => [value, one.y[i], one.band[i] || 0]).filter(([, value]) => value !== null);
      if (!points.length) continue;
      const d = (values) => values.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("L");
      inner.append(
        make("path", { d: `M${d(points.map(([a, b, s]) => [a, b + s]))}L${d(points.map(([a, b, s]) => [a, b - s]).reverse())}Z`, fill: stroke, opacity: 0.15 }),
        make("path", { class: "curve", d: `M${d(points)}`, fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": dash, "data-at": key(at) }));
    }
    svg.append(inner);
    chart.replaceChildren(svg);
    const sample = (stroke, dash) => make("svg", { viewBox: "0 0 26 10", "aria-hidden": true }, make("path", { d: "M0 5H26", stroke, "stroke-width": 2.4, "stroke-dasharray": dash }));
    const outside = shown.some(([at]) => cell(at).y.slice(Math.floor(cell(at).y.length * 0.1)).some((one) => one !== null && (one < low || one > high)));
    pins.replaceChildren(
      make("span", {}, sample("var(--decoupled)", null), cell(state.at) && cell(state.at).x.length ? " shown now" : " no run of this setting trained to the end"),
      ...(shown.some(([at]) => cell(at).uneven) ? [make("span", { class: "held" }, "A run that ended before others of its setting is drawn with its last value from there on.")] : []),
      ...(outside ? [make("span", { class: "outside" }, "A part lies outside the frame: choose the whole range.")] : []),
      ...state.pins.map((at, i) => make("button", { type: "button", onclick: () => pin(at), "aria-label": `Unpin forward ${at[0]}, backward ${at[1]}` }, sample(...PINS[i]), make("span", {}, ...tau("f"), ` ${at[0]}, `, ...tau("b"), ` ${at[1]}`), "×")));
  }

  const frames = new Map();

  function drawAll() { drawChoicesKeepingFocus(); drawMap(); look(state.at); }

  function drawChoicesKeepingFocus() {
    const held = document.activeElement && choices.contains(document.activeElement) ? [document.activeElement.name, document.activeElement.value] : null;
    drawChoices();
    if (held) choices.querySelector(`input[name="${held[0]}"][value="${held[1]}"]`).focus();
  }

  /* At what the search chose; else at the best cell, those with runs that diverged last, as in the figures. */
  function start() {
    const known = measure().cells.filter((one) => one.mean !== null), whole = known.filter((one) => !one.diverged);
    const [first, ...rest] = [whole, known, measure().cells].find((cells) => cells.length);
    const best = rest.reduce((a, b) => ((measure().low ? b.mean < a.mean : b.mean > a.mean) ? b : a), first);
    state.at = map().ours && cell(map().ours) ? map().ours : best.at;
    drawAll();
  }
  start();
  let drawnAt = room();
  addEventListener("resize", () => { if (room() !== drawnAt) { drawnAt = room(); drawMap(); look(state.at); } });
})();
