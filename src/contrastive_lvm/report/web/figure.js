// A plot as a figure for a paper: 180 mm wide, on white, with a legend; as SVG, or PNG at 300 dpi.
const FIGURE = { width: 720, height: 520, legend: 170, millimetres: 180, dpi: 300, most: 24 };

function xml(text) { return String(text).replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`); }

function label(x, y, text, more = "") { return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${xml(text)}</text>`; }

function onWhite(colour) { return colour.toLowerCase() === "#ffffff" ? "#000000" : colour; }

// A point as markup, in the shapes that `shape` draws.
function mark(kind, x, y, r, colour, hollow) {
  const paint = hollow ? `fill="none" stroke="${colour}"` : `fill="${colour}"`, at = (dx, dy) => `${(x + dx * r).toFixed(1)},${(y + dy * r).toFixed(1)}`;
  if (hollow || kind === "circle") return `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${hollow ? r - 0.4 : r}" ${paint}/>`;
  const corners = { square: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]], triangle: [[0, -1], [1, 0.8], [-1, 0.8]],
    diamond: [[0, -1], [1, 0], [0, 1], [-1, 0]] }[kind];
  return `<polygon points="${corners.map(([dx, dy]) => at(dx, dy)).join(" ")}" ${paint}/>`;
}

function figureFrame(view) {
  const right = view.width - MARGIN.right, bottom = view.height - MARGIN.bottom, { xAxis, yAxis, box } = view;
  const parts = [`<rect x="${MARGIN.left}" y="${MARGIN.top}" width="${right - MARGIN.left}" height="${bottom - MARGIN.top}" fill="none" stroke="#444"/>`];
  const middle = 'text-anchor="middle"', end = 'text-anchor="end"', y = (MARGIN.top + bottom) / 2;
  if (!xAxis.bare) for (const t of ticks(box.x0, box.x1)) parts.push(label(view.toX(t), bottom + 16, shortNumber(t), middle));
  if (!yAxis.bare) for (const t of ticks(box.y0, box.y1)) parts.push(label(MARGIN.left - 6, view.toY(t) + 4, shortNumber(t), end));
  parts.push(label((MARGIN.left + right) / 2, view.height - 6, xAxis.label, middle));
  parts.push(label(13, y, yAxis.label, `${middle} transform="rotate(-90 13 ${y})"`));
  return parts;
}

// The colours of the points that are drawn, and what open circles are.
function figureLegend(view, shown) {
  const x = view.width + 8, parts = [], line = (k) => MARGIN.top + 12 + 18 * k;
  const short = (text) => text.length > 22 ? `${text.slice(0, 21)}\u2026` : text;
  let k = 0;
  if (colourName()) parts.push(label(x, line(k++), short(colourName()), 'font-weight="bold"'));
  if (colouring.feature >= 0 || colouring.column?.kind === "number") {
    report.ramp.forEach((colour, i) => parts.push(`<rect x="${x + 1.8 * i}" y="${line(k) - 10}" width="2.3" height="11" fill="${colour}"/>`));
    parts.push(label(x, line(++k), shortNumber(colouring.low)), label(x + 115, line(k++), shortNumber(colouring.high), 'text-anchor="end"'));
  } else if (colouring.column) {
    const used = new Set(shown.map((row) => colouring.index[row]));
    const levels = colouring.column.levels.map((name, code) => [name, code + 1]).filter(([, at]) => used.has(at));
    for (const [name, at] of levels.slice(0, FIGURE.most)) {
      parts.push(mark(colouring.shapes[at], x + 5, line(k) - 4, 4.5, onWhite(colouring.colours[at]), false), label(x + 15, line(k++), short(name)));
    }
    if (levels.length > FIGURE.most) parts.push(label(x + 15, line(k++), `and ${levels.length - FIGURE.most} more`));
  }
  if (shown.some((row) => !isTarget(row))) {
    parts.push(mark("circle", x + 5, line(k) - 4, 4.5, "#444444", true), label(x + 15, line(k), "open: background"));
  }
  return parts;
}

function figureOf(scatter) {
  const { width, height, millimetres } = FIGURE;
  const view = Object.assign(Object.create(scatter), { width: width - FIGURE.legend, height });
  const shown = [...order].filter((row) => scatter.px[row] >= 0), radius = Math.max(1.6, Math.min(4, 90 / Math.sqrt(shown.length + 1) + 1.2));
  const points = (wanted, alpha, times) => [`<g opacity="${alpha}">`, ...shown.filter(wanted).map((row) => {
    const at = colouring.index[row];
    return mark(colouring.shapes[at], view.toX(scatter.xAxis.values[row]), view.toY(scatter.yAxis.values[row]), times * radius, onWhite(colouring.colours[at]), !isTarget(row));
  }), "</g>"];
  const some = selection.count > 0;
  return [`<svg xmlns="http://www.w3.org/2000/svg" width="${millimetres}mm" height="${(millimetres * height / width).toFixed(1)}mm" viewBox="0 0 ${width} ${height}" font-family="Arial, Helvetica, sans-serif" font-size="12">`,
    '<rect width="100%" height="100%" fill="#ffffff"/>', ...points((row) => !selection.chosen[row], some ? 0.15 : 0.85, 1),
    ...some ? points((row) => selection.chosen[row], 1, 1.25) : [], ...figureFrame(view), ...figureLegend(view, shown), "</svg>"].join("\n");
}

function saveFigure(scatter, name, kind) {
  const text = figureOf(scatter);
  if (kind === "svg") return save(`${name}.svg`, [text], "image/svg+xml");
  const image = new Image(), canvas = document.createElement("canvas");
  canvas.width = Math.round(FIGURE.millimetres / 25.4 * FIGURE.dpi);
  canvas.height = Math.round(canvas.width * FIGURE.height / FIGURE.width);
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${name}.png`, [blob], "image/png"), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}
