/* Every figure as SVG and PNG, every table as CSV. */
function save(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/* A figure of the page is drawn once, whole, and shown in panels: here it is one picture again, in the light colours. */
function wholeFigure(figure) {
  const panels = [...figure.querySelectorAll("svg.panel")].map((one) => one.viewBox.baseVal);
  const [width, height] = [panels.reduce((sum, box) => sum + box.width, 0), panels[0].height];
  const drawing = figure.querySelector("svg.panel > g").cloneNode(true);
  const light = document.styleSheets[0].cssRules[0].style;
  const picture = make("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width: `${width}pt`, height: `${height}pt` }, drawing);
  const text = new XMLSerializer().serializeToString(picture).replace(/var\((--[\w-]+)\)/g, (_, name) => light.getPropertyValue(name).trim());
  return { text, width: width * 4 / 3, height: height * 4 / 3 };
}

/* The map and the curve take their look from the page: it is written into the picture. */
function styledDrawing(svg) {
  const copy = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
  const [from, to] = [[...svg.querySelectorAll("*")], [...copy.querySelectorAll("*")]];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "text-anchor"]) to[i].style.setProperty(name, style.getPropertyValue(name));
  });
  const hatch = document.getElementById("hatch").closest("defs").cloneNode(true);
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
  copy.prepend(hatch, make("rect", { width, height, fill: paper }));
  for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height })) copy.setAttribute(name, value);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function saveSvg(name, { text }) { save(`${name}.svg`, new Blob([`<?xml version="1.0" encoding="utf-8"?>\n${text}`], { type: "image/svg+xml" })); }

function savePng(name, { text, width, height }) {
  const image = new Image(), scale = 2.5;
  image.onload = () => {
    const canvas = make("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
    const brush = canvas.getContext("2d");
    brush.fillStyle = "#fff";
    brush.fillRect(0, 0, canvas.width, canvas.height);
    brush.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function pictureButtons(name, picture) {
  const button = (text, how) => make("button", { type: "button", class: "link", "aria-label": `Download ${name} as ${text}`, onclick: () => how(name, picture()) }, text);
  return make("span", { class: "tools" }, "Download ", button("SVG", saveSvg), " ", button("PNG", savePng));
}

/* No spreadsheet takes a text for a formula; a number is none. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (!/^[+-]?\d*\.?\d+(e[+-]?\d+)?$/i.test(text) && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/* A number of the page as others read it, whichever minus it was written with, and without commas between thousands:
   "2,4" is none. */
function readable(text) {
  const plain = text.replace(/^−/, "-").replace(/^\+(?=[\d.])/, "");
  if (/^[+-]?(\d{1,3}(,\d{3})+(\.\d+)?|\d*\.?\d+)(e[+-]?\d+)?$/i.test(plain)) return plain.replaceAll(",", "");
  return text.replace(/^\+(?=[\d.])/, "");
}

function saveCsv(name, rows) { save(`${name}.csv`, new Blob([rows.map((row) => `${row.map(csvCell).join(",")}\n`).join("")], { type: "text/csv" })); }

/* What a cell says; its small print comes after a semicolon. Letters, links and marks inside a line are part of it. */
function cellText(cell) {
  const parts = [""];
  for (const node of cell.childNodes) {
    if (node.classList && (node.classList.contains("narrow") || node.classList.contains("unsaid"))) continue;
    if (node.nodeName === "SMALL") parts.push(node.textContent, "");
    else parts.push(parts.pop() + node.textContent);
  }
  const said = parts.map((text) => text.trim()).filter(Boolean).join("; ").replace(/\s+/g, " ");
  return cell.classList.contains("given") ? said : readable(said);
}

/* Every row has as many cells as the table has columns: one that spans several stands in the first of its places.
   `below` says into how many more rows the cells above reach, by column. */
function tableRows(table) {
  const rows = [], below = [];
  let group = "";
  const grouped = table.querySelector("tr.group") !== null;
  for (const row of table.rows) {
    if (row.classList.contains("group")) { group = row.textContent.trim().replace(/\s+/g, " "); continue; }
    const cells = [];
    const pass = () => { while (below[cells.length] > 0) { below[cells.length]--; cells.push(""); } };
    for (const cell of row.cells) {
      pass();
      for (let i = 0; i < cell.colSpan; i++) { below[cells.length] = cell.rowSpan - 1; cells.push(i ? "" : cellText(cell)); }
    }
    pass();
    rows.push(grouped ? [row.closest("thead") ? "" : group, ...cells] : cells);
  }
  return rows;
}

for (const figure of document.querySelectorAll("figure.card")) {
  if (figure.querySelector("svg.panel")) figure.querySelector("figcaption").append(pictureButtons(figure.id.replace(/^figure-/, ""), () => wholeFigure(figure)));
}
for (const frame of document.querySelectorAll(".scroll[data-name]")) {
  const name = frame.dataset.name;
  frame.parentElement.append(make("span", { class: "tools" }, make("button", { type: "button", class: "link", "aria-label": `Download ${name} as CSV`, onclick: () => saveCsv(name, tableRows(frame.querySelector("table"))) }, "Download CSV")));
}
