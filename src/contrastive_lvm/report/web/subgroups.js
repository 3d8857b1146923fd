// Subgroups: their sizes, what sets them apart, and ellipses around them.
const RADIUS = Math.sqrt(-2 * Math.log(0.1)); // standard deviations around 90 % of a plane's rows

// Ellipses of the components, while rows have the colours of their subgroups.
function drawEllipses(view) {
  const found = report.subgroups, dims = [view.xAxis, view.yAxis].map((axis) => axis.std?.set === "target" ? axis.std.k : -1);
  if (!found || colouring.column?.name !== found.column || Math.min(...dims) < 0 || dims[0] === dims[1]) return;
  const { context } = view;
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, view.width - MARGIN.left - MARGIN.right, view.height - MARGIN.top - MARGIN.bottom);
  context.clip();
  context.lineWidth = 1.5;
  found.means.forEach((mean, c) => {
    const cov = found.covariances[c], [i, j] = dims;
    const a = Math.sqrt(cov[i][i]), b = cov[i][j] / a, d = Math.sqrt(Math.max(0, cov[j][j] - b * b)); // Cholesky
    context.strokeStyle = groupColour(c);
    context.beginPath();
    for (let k = 0; k <= 72; k++) {
      const u = RADIUS * Math.cos(k * Math.PI / 36), v = RADIUS * Math.sin(k * Math.PI / 36);
      context.lineTo(view.toX(mean[i] + a * u), view.toY(mean[j] + b * u + d * v));
    }
    context.stroke();
  });
  context.restore();
}

function drawSubgroups() {
  const root = document.getElementById("subgroups"), found = report.subgroups, parts = [];
  if (found) {
    const rows = found.table.map((line, c) => make("tr", {}, make("th", { scope: "row", text: `subgroup ${c + 1}` }),
      make("td", { class: "number", text: percent(line.share) }), make("td", { class: "number", text: line.rows.toLocaleString("en") }),
      make("td", { class: "number", text: line.certain.toLocaleString("en") }), make("td", { text: line.features })));
    const head = make("tr", {}, ...["", "share", "rows", "90 % certain", "sets it apart from the average row"].map((text, k) =>
      make("th", { scope: "col", class: k && k < 4 ? "number" : "", text })));
    parts.push(make("h2", { text: "Subgroups" }),
      make("div", { class: "scroll" }, make("table", { id: "subgroup-table" }, make("thead", {}, head), make("tbody", {}, ...rows))));
    if (found.stability) parts.push(make("p", { text: found.stability }));
    parts.push(make("p", { class: "small", text: "Ellipses hold 90 % of a fitted component. Differences are those of the fitted model, in its units, and have no standard errors: rows were put into subgroups by the same features, so that errors computed as if the subgroups were known would be too small." }));
  }
  if (report.annotation_notes.length) {
    parts.push(make("h2", { text: "What annotations explain" }), make("ul", {}, ...report.annotation_notes.map((text) =>
      make("li", { class: text.includes(": check ") ? "care" : "note", text }))));
  }
  root.replaceChildren(...parts);
  root.hidden = !parts.length;
}
