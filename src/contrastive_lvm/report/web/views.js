// The two scatter plots with their controls, pointer and keyboard, and the tooltip.
const hovered = { row: -1 };

function hover(row) {
  if (row === hovered.row) return;
  hovered.row = row;
  tell("hover");
}

Scatter.prototype.listen = function () {
  const at = (event) => {
    const box = this.top.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  this.top.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    this.top.setPointerCapture(event.pointerId);
    this.lasso = [at(event)];
    hideTip();
  });
  this.top.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!this.lasso) return this.pointAt(x, y, event);
    const last = this.lasso[this.lasso.length - 1];
    if (Math.hypot(x - last[0], y - last[1]) < 3) return;
    this.lasso.push([x, y]);
    this.drawTop();
  });
  this.top.addEventListener("pointerup", (event) => {
    if (!this.lasso) return;
    const rows = this.lasso.length > 3 ? this.inLasso() : [this.nearest(...this.lasso[0])].filter((row) => row >= 0);
    const clicked = this.lasso.length <= 3;
    this.lasso = null;
    select(rows, event.shiftKey ? (clicked ? "toggle" : "add") : "replace");
  });
  this.top.addEventListener("pointercancel", () => { this.lasso = null; this.drawTop(); });
  this.top.addEventListener("pointerleave", () => { hover(-1); hideTip(); });
  this.top.addEventListener("blur", () => { this.cursor = -1; hideTip(); this.drawTop(); });
  this.top.addEventListener("keydown", (event) => this.key(event));
  this.top.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the page scrolls
    event.preventDefault();
    this.zoomAbout(...at(event), event.deltaY > 0 ? 1.2 : 1 / 1.2);
  }, { passive: false });
};

Scatter.prototype.pointAt = function (x, y, event) {
  const row = this.squares ? this.nearest(x, y) : -1;
  hover(row);
  this.top.style.cursor = row >= 0 ? "pointer" : "crosshair";
  if (row >= 0) showTip(row, this, event.clientX, event.clientY);
  else hideTip();
};

Scatter.prototype.zoomAbout = function (px, py, times) {
  const x = this.fromX(px), y = this.fromY(py), b = this.box;
  this.zoomTo({ x0: x + (b.x0 - x) * times, x1: x + (b.x1 - x) * times, y0: y + (b.y0 - y) * times, y1: y + (b.y1 - y) * times });
};

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

Scatter.prototype.key = function (event) {
  if (event.key in ARROWS) this.go(...ARROWS[event.key]);
  else if (event.key === "Enter" || event.key === " ") {
    if (this.cursor >= 0) select([this.cursor], event.shiftKey ? "toggle" : "replace");
  } else if (event.key === "+" || event.key === "=") this.zoomAbout(this.width / 2, this.height / 2, 1 / 1.3);
  else if (event.key === "-") this.zoomAbout(this.width / 2, this.height / 2, 1.3);
  else if (event.key === "0") this.zoomTo(null);
  else return;
  event.preventDefault();
};

// To the nearest point within 45 degrees of a direction.
Scatter.prototype.go = function (dx, dy) {
  const here = this.cursor >= 0 && this.px[this.cursor] >= 0;
  const x = here ? this.px[this.cursor] : this.width / 2, y = here ? this.py[this.cursor] : this.height / 2;
  let best = -1, least = Infinity;
  for (let i = 0; i < nRows; i++) {
    if (!(this.px[i] >= 0) || i === this.cursor) continue;
    const along = (this.px[i] - x) * dx + (this.py[i] - y) * dy;
    const aside = Math.abs((this.px[i] - x) * dy) + Math.abs((this.py[i] - y) * dx);
    if (here && (along < aside || along + aside === 0)) continue;
    const far = Math.hypot(along, aside);
    if (far < least) [best, least] = [i, far];
  }
  if (best < 0) return;
  this.cursor = best;
  hover(best);
  this.drawTop();
  const box = this.top.getBoundingClientRect();
  showTip(best, this, box.left + this.px[best], box.top + this.py[best]);
  speak(tipLines(best, this).map(([name, text]) => `${name} ${text}`).join(", "));
};

const MOST_LINES = 14;

function tipLines(row, view) {
  const lines = [[isTarget(row) ? "target row" : "background row", rowName(row)]];
  for (const axis of [view.xAxis, view.yAxis]) {
    if (axis.bare || !isFinite(axis.values[row])) continue;
    const std = stdOf(axis, row);
    lines.push([axis.label, shortNumber(axis.values[row]) + (isFinite(std) ? ` \u00b1 ${shortNumber(std, 2)}` : "")]);
  }
  if (colouring.feature >= 0) lines.push([colourName(), shortNumber(observed(row, colouring.feature)) || "missing"]);
  const told = new Set(lines.map((line) => line[0]));
  for (const column of columns) {
    const text = column.sets || told.has(column.name) ? null : annotation(column, row);
    if (text !== null && lines.length < MOST_LINES) lines.push([column.name, text]);
  }
  return lines;
}

function showTip(row, view, x, y) {
  const tip = document.getElementById("tip");
  const lines = tipLines(row, view);
  tip.replaceChildren(make("strong", { text: `${lines[0][0]} ${lines[0][1]}` }),
    make("dl", {}, ...lines.slice(1).flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })])));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 6))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(4, y - box.height - 12) : y + 16}px`;
}

function hideTip() { document.getElementById("tip").hidden = true; }

// A plot with a heading, a choice of axes and buttons.
function view(id, title, x, y, shows) {
  const root = document.getElementById(id);
  const caption = make("figcaption");
  root.append(caption);
  const scatter = new Scatter(root, { title, x, y, shows });
  const choice = (name, axis) => {
    const options = axes.map((a, i) => make("option", { value: i, text: a.label, selected: a === axis }));
    const box = make("select", { "aria-label": `${name} axis of ${title.toLowerCase()}`, onchange: change }, ...options);
    return box;
  };
  const across = choice("horizontal", x), up = choice("vertical", y);
  function change() { scatter.setAxes(axes[across.value], axes[up.value]); }
  const zoom = make("button", { type: "button", text: "Zoom to selection", disabled: true,
    onclick: () => scatter.zoomTo(scatter.around((i) => selection.chosen[i])) });
  on("selection", () => { zoom.disabled = !selection.count; });
  caption.append(make("strong", { text: title }), make("label", {}, "x ", across), make("label", {}, "y ", up), zoom,
    make("button", { type: "button", text: "All", "aria-label": `show all rows of ${title.toLowerCase()}`, onclick: () => scatter.zoomTo(null) }),
    ...["PNG", "SVG"].map((kind) => make("button", { type: "button", text: kind, "aria-label": `save ${title.toLowerCase()} as ${kind}`,
      title: "180 mm wide, with a legend", onclick: () => saveFigure(scatter, id, kind.toLowerCase()) })));
  return scatter;
}
