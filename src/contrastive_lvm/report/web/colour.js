// Colours of the rows: an index into a list of colours and shapes for each.
const GREY = "#8a8f95";
const SHAPES = ["circle", "square", "triangle", "diamond"];
const colouring = { column: null, feature: -1, index: new Uint8Array(nRows), colours: [], shapes: [] };

function isDark() { return document.documentElement.dataset.theme === "dark"; }

// Black and white change places with the paper.
function groupColour(code) {
  const colour = report.palette[code % report.palette.length];
  return colour.toLowerCase() === "#000000" && isDark() ? "#ffffff" : colour;
}

function groupShape(code) { return SHAPES[Math.floor(code / report.palette.length) % SHAPES.length]; }

function byGroups(column) {
  colouring.colours = [GREY, ...column.levels.map((_, code) =>
    column.sets ? (code ? GREY : groupColour(0)) : groupColour(code))];
  colouring.shapes = ["circle", ...column.levels.map((_, code) => groupShape(code))];
  for (let i = 0; i < nRows; i++) colouring.index[i] = column.codes[i] + 1;
}

function byNumbers(number) {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < nRows; i++) {
    const value = number(i);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  colouring.low = low;
  colouring.high = high;
  colouring.colours = [GREY, ...report.ramp];
  colouring.shapes = colouring.colours.map(() => "circle");
  const top = report.ramp.length - 1, range = high - low || 1;
  for (let i = 0; i < nRows; i++) {
    const value = number(i);
    colouring.index[i] = isNaN(value) ? 0 : 1 + Math.round(top * (value - low) / range);
  }
}

function colourBy(column, feature = -1) {
  colouring.column = column;
  colouring.feature = feature;
  if (feature >= 0) byNumbers((row) => observed(row, feature));
  else if (!column) {
    colouring.colours = [GREY, groupColour(0)];
    colouring.shapes = ["circle", "circle"];
    for (let i = 0; i < nRows; i++) colouring.index[i] = isTarget(i) ? 1 : 0;
  } else if (column.kind === "number") byNumbers((row) => column.values[row]);
  else byGroups(column);
  tell("colour");
}

function colourName() {
  if (colouring.feature >= 0) return report.features[values.features[colouring.feature]];
  return colouring.column ? colouring.column.name : "";
}

// The legend: groups are buttons that select their rows, numbers a ramp.
function drawLegend() {
  const legend = document.getElementById("legend");
  const column = colouring.column;
  if (colouring.feature >= 0 || (column && column.kind === "number")) {
    const ramp = make("div", { class: "ramp", role: "img", "aria-label": "colours from low to high" });
    ramp.style.background = `linear-gradient(to right, ${report.ramp.join(",")})`;
    const ends = [colouring.low, colouring.high].map((x) => make("span", { text: shortNumber(x) }));
    legend.replaceChildren(make("strong", { text: colourName() }), ends[0], ramp, ends[1]);
    return;
  }
  legend.replaceChildren(...(column ? column.levels.map((name, code) => groupButton(column, name, code)) : []));
}

// Rows of each group, found once.
function groupRows(column) {
  if (!column.rows) {
    column.rows = column.levels.map(() => []);
    for (let i = 0; i < nRows; i++) column.rows[column.codes[i]]?.push(i);
  }
  return column.rows;
}

function groupButton(column, name, code) {
  const rows = groupRows(column)[code];
  const swatch = make("canvas", { width: 28, height: 28, "aria-hidden": "true" });
  const context = swatch.getContext("2d");
  context.fillStyle = colouring.colours[code + 1];
  shape(context, colouring.shapes[code + 1], 14, 14, 11);
  const pressed = rows.length > 0 && rows.length === selection.count && rows.every((row) => selection.chosen[row]);
  return make("button", {
    type: "button", "aria-pressed": String(pressed), title: `Select these ${rows.length} rows`,
    onclick: (event) => select(rows, event.shiftKey ? "add" : "replace"),
  }, swatch, `${name} `, make("span", { class: "small", text: rows.length.toLocaleString("en") }));
}
