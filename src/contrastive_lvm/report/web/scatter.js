// A scatter plot of rows: a canvas of points, and one above it for what moves.
class Scatter {
  constructor(root, { title, x, y, shows }) {
    Object.assign(this, { xAxis: x, yAxis: y, shows, zoomed: null, cursor: -1, lasso: null, stale: true });
    this.base = make("canvas", { "aria-hidden": "true" });
    this.top = make("canvas", {
      tabindex: "0", role: "application",
      "aria-label": `${title}: arrow keys move from point to point, Enter selects, Escape clears`,
    });
    this.plot = make("div", { class: "plot" }, this.base, this.top);
    root.append(this.plot);
    new ResizeObserver(() => this.refresh()).observe(this.plot);
    this.listen();
    on("selection", () => this.redraw());
    on("colour", () => this.redraw());
    on("theme", () => this.redraw());
    on("hover", () => this.drawTop());
  }

  setAxes(x, y) {
    Object.assign(this, { xAxis: x, yAxis: y, zoomed: null });
    this.refresh();
  }

  refresh() { // positions have changed
    this.stale = true;
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
      this.drawTop();
    });
  }

  visible(row) { return this.shows(row) && isFinite(this.xAxis.values[row]) && isFinite(this.yAxis.values[row]); }

  // The smallest box around rows, with a margin.
  around(rows) {
    const box = { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity };
    const xs = this.xAxis.values, ys = this.yAxis.values;
    for (let i = 0; i < nRows; i++) {
      if (!rows(i) || !this.visible(i)) continue;
      box.x0 = Math.min(box.x0, xs[i]);
      box.x1 = Math.max(box.x1, xs[i]);
      box.y0 = Math.min(box.y0, ys[i]);
      box.y1 = Math.max(box.y1, ys[i]);
    }
    if (!(box.x0 <= box.x1)) return { x0: -1, x1: 1, y0: -1, y1: 1 };
    const marginX = 0.05 * (box.x1 - box.x0) || 0.5, marginY = 0.05 * (box.y1 - box.y0) || 0.5;
    return { x0: box.x0 - marginX, x1: box.x1 + marginX, y0: box.y0 - marginY, y1: box.y1 + marginY };
  }

  toX(x) { return MARGIN.left + (x - this.box.x0) / (this.box.x1 - this.box.x0) * (this.width - MARGIN.left - MARGIN.right); }
  toY(y) { return this.height - MARGIN.bottom - (y - this.box.y0) / (this.box.y1 - this.box.y0) * (this.height - MARGIN.top - MARGIN.bottom); }
  fromX(px) { return this.box.x0 + (px - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right) * (this.box.x1 - this.box.x0); }
  fromY(py) { return this.box.y0 + (this.height - MARGIN.bottom - py) / (this.height - MARGIN.top - MARGIN.bottom) * (this.box.y1 - this.box.y0); }

  // Pixels of every row; NaN where it is not drawn.
  place() {
    this.box = this.zoomed ?? withEllipses(this, this.around(() => true));
    this.px ??= new Float32Array(nRows);
    this.py ??= new Float32Array(nRows);
    this.drawn = 0;
    for (let i = 0; i < nRows; i++) {
      const x = this.toX(this.xAxis.values[i]), y = this.toY(this.yAxis.values[i]);
      const inside = this.shows(i) && x >= MARGIN.left && x <= this.width - MARGIN.right
        && y >= MARGIN.top && y <= this.height - MARGIN.bottom;
      this.px[i] = inside ? x : NaN;
      this.py[i] = inside ? y : NaN;
      this.drawn += inside;
    }
    this.index();
    this.stale = false;
  }

  // Rows by squares of pixels, for what is near the pointer.
  index() {
    const across = Math.ceil(this.width / 16) + 1, squares = across * (Math.ceil(this.height / 16) + 1);
    const start = new Int32Array(squares + 1), rows = new Int32Array(this.drawn);
    const square = (i) => Math.floor(this.py[i] / 16) * across + Math.floor(this.px[i] / 16);
    for (let i = 0; i < nRows; i++) if (this.px[i] >= 0) start[square(i) + 1]++;
    for (let s = 0; s < squares; s++) start[s + 1] += start[s];
    const next = start.slice();
    for (let i = 0; i < nRows; i++) if (this.px[i] >= 0) rows[next[square(i)]++] = i;
    this.squares = { across, start, rows };
  }

  nearest(x, y, within = 12) {
    const { across, start, rows } = this.squares;
    let best = -1, least = within * within;
    for (let sy = Math.max(0, Math.floor((y - within) / 16)); sy <= Math.floor((y + within) / 16); sy++) {
      for (let sx = Math.max(0, Math.floor((x - within) / 16)); sx <= Math.floor((x + within) / 16); sx++) {
        const s = sy * across + sx;
        for (let k = start[s] ?? 0; k < (start[s + 1] ?? 0); k++) {
          const far = (this.px[rows[k]] - x) ** 2 + (this.py[rows[k]] - y) ** 2;
          if (far <= least) [best, least] = [rows[k], far];
        }
      }
    }
    return best;
  }

  draw() {
    const begin = performance.now();
    Object.assign(this, fitted(this.base));
    if (this.stale) this.place();
    this.context.fillStyle = variable("--paper");
    this.context.fillRect(0, 0, this.width, this.height);
    drawFrame(this.context, this);
    this.fine = this.drawn > FINE;
    const some = selection.count > 0, faint = some ? 0.13 : this.fine ? 0.5 : 0.8;
    const radius = Math.max(1.8, Math.min(4, 90 / Math.sqrt(this.drawn + 1) + 1.2));
    const paint = (times, alpha, wanted) => this.fine
      ? this.drawFine(alpha, wanted, times > 1) : this.drawRows(times * radius, alpha, wanted);
    paint(1, faint, (i) => !selection.chosen[i]);
    if (some) paint(1.25, 1, (i) => selection.chosen[i]);
    drawEllipses(this);
    this.milliseconds = performance.now() - begin;
  }

  drawRows(radius, alpha, wanted) {
    const stamps = this.fine ? null : colouring.colours.map((colour, c) =>
      [true, false].map((hollow) => stamp(colour, colouring.shapes[c], radius, hollow)));
    this.context.globalAlpha = alpha;
    for (const i of order) {
      if (!(this.px[i] >= 0) || !wanted(i)) continue;
      const { canvas, size } = stamps[colouring.index[i]][isTarget(i) ? 1 : 0];
      this.context.drawImage(canvas, this.px[i] - size / 2, this.py[i] - size / 2, size, size);
    }
    this.context.globalAlpha = 1;
  }

  // Many points: squares of pixels, blended by hand, many times faster than by the canvas.
  drawFine(alpha, wanted, wide) {
    const { width, height } = this.base, ratio = width / this.width;
    const image = this.context.getImageData(0, 0, width, height), data = image.data;
    const colours = colouring.colours.map(rgb), size = Math.round((wide ? 3 : 2) * ratio);
    for (const i of order) {
      if (!(this.px[i] >= 0) || !wanted(i)) continue;
      const [r, g, b] = colours[colouring.index[i]];
      const x0 = Math.round(this.px[i] * ratio - size / 2), y0 = Math.round(this.py[i] * ratio - size / 2);
      for (let y = y0; y < y0 + size; y++) {
        for (let p = 4 * (y * width + x0), end = p + 4 * size; p < end; p += 4) {
          data[p] += (r - data[p]) * alpha;
          data[p + 1] += (g - data[p + 1]) * alpha;
          data[p + 2] += (b - data[p + 2]) * alpha;
        }
      }
    }
    this.context.putImageData(image, 0, 0);
  }

  drawTop() {
    const { context, width, height } = fitted(this.top);
    context.clearRect(0, 0, width, height);
    context.strokeStyle = variable("--ink");
    for (const row of [hovered.row, this.cursor]) if (row >= 0 && this.px?.[row] >= 0) this.drawRow(context, row);
    if (!this.lasso) return;
    context.lineWidth = 1.5;
    context.strokeStyle = variable("--accent");
    context.fillStyle = `${variable("--accent")}22`;
    context.beginPath();
    this.lasso.forEach(([x, y]) => context.lineTo(x, y));
    context.closePath();
    context.fill();
    context.stroke();
  }

  // A ring around a row, and one standard deviation each way.
  drawRow(context, row) {
    const x = this.px[row], y = this.py[row];
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 7, 0, 2 * Math.PI);
    context.stroke();
    const stdX = stdOf(this.xAxis, row), stdY = stdOf(this.yAxis, row);
    context.lineWidth = 1;
    context.beginPath();
    if (isFinite(stdX)) {
      context.moveTo(this.toX(this.xAxis.values[row] - stdX), y);
      context.lineTo(this.toX(this.xAxis.values[row] + stdX), y);
    }
    if (isFinite(stdY)) {
      context.moveTo(x, this.toY(this.yAxis.values[row] - stdY));
      context.lineTo(x, this.toY(this.yAxis.values[row] + stdY));
    }
    context.stroke();
  }

  inLasso() {
    const polygon = this.lasso, found = [];
    const xs = polygon.map((p) => p[0]), ys = polygon.map((p) => p[1]);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    for (let i = 0; i < nRows; i++) {
      const x = this.px[i], y = this.py[i];
      if (!(x >= x0 && x <= x1 && y >= y0 && y <= y1)) continue;
      let inside = false;
      for (let a = 0, b = polygon.length - 1; a < polygon.length; b = a++) {
        if ((ys[a] > y) !== (ys[b] > y) && x < (xs[b] - xs[a]) * (y - ys[a]) / (ys[b] - ys[a]) + xs[a]) inside = !inside;
      }
      if (inside) found.push(i);
    }
    return found;
  }

  zoomTo(box) {
    this.zoomed = box;
    this.refresh();
  }
}
