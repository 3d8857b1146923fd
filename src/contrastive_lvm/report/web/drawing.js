// Drawing on a canvas: sizes, shapes, ticks.
const MARGIN = { left: 52, right: 12, top: 10, bottom: 40 };
const FINE = 20000; // rows above which points are squares of whole pixels

// The background's rows first, each set shuffled, so that no group hides another by its place.
const order = Int32Array.from({ length: nRows }, (_, i) => i);
{
  let seed = 1;
  const swap = (from, to) => {
    for (let i = to - 1; i > from; i--) {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      const j = from + Math.floor(seed / 2147483648 * (i - from + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
  };
  swap(0, nTarget);
  swap(nTarget, nRows);
  order.set([...order.slice(nTarget), ...order.slice(0, nTarget)]);
}

function rgb(colour) { return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)); }

function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const box = canvas.parentElement.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(box.width * ratio));
  canvas.height = Math.max(1, Math.round(box.height * ratio));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width: box.width, height: box.height };
}

function shape(context, kind, x, y, r) {
  context.beginPath();
  if (kind === "square") context.rect(x - 0.85 * r, y - 0.85 * r, 1.7 * r, 1.7 * r);
  else if (kind === "triangle") {
    context.moveTo(x, y - r);
    context.lineTo(x + r, y + 0.8 * r);
    context.lineTo(x - r, y + 0.8 * r);
    context.closePath();
  } else if (kind === "diamond") {
    context.moveTo(x, y - r);
    context.lineTo(x + r, y);
    context.lineTo(x, y + r);
    context.lineTo(x - r, y);
    context.closePath();
  } else context.arc(x, y, r, 0, 2 * Math.PI);
  context.fill();
}

// A point drawn once, to be stamped many times.
function stamp(colour, kind, radius, hollow) {
  const ratio = 2 * (window.devicePixelRatio || 1), size = Math.ceil(2 * radius + 3);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = context.strokeStyle = colour;
  if (hollow) {
    context.lineWidth = 1.2;
    context.beginPath();
    context.arc(size / 2, size / 2, radius - 0.4, 0, 2 * Math.PI);
    context.stroke();
  } else shape(context, kind, size / 2, size / 2, radius);
  return { canvas, size };
}

function ticks(low, high, most = 6) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

function drawFrame(context, view) {
  const { width, height, xAxis, yAxis } = view;
  const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = context.strokeStyle = variable("--muted");
  context.lineWidth = 1;
  context.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, right - MARGIN.left, bottom - MARGIN.top);
  context.textAlign = "center";
  if (!xAxis.bare) for (const t of ticks(view.box.x0, view.box.x1)) context.fillText(shortNumber(t), view.toX(t), bottom + 16);
  context.fillText(xAxis.label, (MARGIN.left + right) / 2, height - 6);
  context.textAlign = "right";
  if (!yAxis.bare) for (const t of ticks(view.box.y0, view.box.y1)) context.fillText(shortNumber(t), MARGIN.left - 6, view.toY(t) + 4);
  context.save();
  context.translate(13, (MARGIN.top + bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(yAxis.label, 0, 0);
  context.restore();
}
