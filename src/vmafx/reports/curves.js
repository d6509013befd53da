// Curves: values under the pointer and by keyboard, and a zoom that is drawn from the values in the page.
const MIN_POINTS = 4; // in the smallest range that can be shown
const DRAG = 6; // pixels from which on a press is a selection
const ROUNDING = 1e-6; // frames, or steps between values
const CLOSER = 5; // times that a zoom shows values closer than the whole curve may be shown
const MARGIN = 0.04; // above and below the values, as a fraction of their span
const DIGIT = 0.64; // width of a digit, as a fraction of the font size
const GAP = 8; // pixels between the plot area and the labels beside it

const clock = (seconds, decimals) => {
  const ticks = Math.round(seconds * 10 ** decimals);
  const whole = Math.floor(ticks / 10 ** decimals);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  const front = minutes < 60 ? minutes : `${Math.floor(minutes / 60)}:${two(minutes % 60)}`;
  const part = decimals ? `.${String(ticks % 10 ** decimals).padStart(decimals, "0")}` : "";
  return `${front}:${two(whole % 60)}${part}`;
};
const grouped = (number) => (number + 0).toLocaleString("en"); // 0 for -0
const plain = (value, decimals) =>
  (value + 0).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).replace("-", "−");

// Index of the frame nearest to `wanted`; frames are sorted.
const nearest = (frames, wanted) => {
  let low = 0, high = frames.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (frames[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low > 0 && wanted - frames[low - 1] < frames[low] - wanted ? low - 1 : low;
};

// About `count` round frame numbers, and their distance.
const frameTicks = (from, to, count) => {
  const rough = Math.max((to - from) / Math.max(count, 1), 1);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((one) => one >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(tick);
  return { ticks, step };
};

// An axis for values from `low` to `high`: round numbers, at most `count` steps apart. As value_ticks of plots.py.
const valueAxis = (low, high, { span, best, decimals }, count) => {
  const floor = low >= 0 ? 0 : -Infinity, ceiling = high <= best ? best : Infinity;
  const least = Math.max(span / CLOSER, Math.abs(high) / 1000, 5 * 10 ** -decimals);
  const margin = Math.max((high - low) * MARGIN, (least - high + low) / 2);
  const top = Math.min(high + margin, ceiling);
  const bottom = Math.max(Math.min(low - margin, top - least), floor);
  for (let power = Math.floor(Math.log10((top - bottom) / count)); ; power += 1) {
    for (const step of [1, 2, 5].map((factor) => factor * 10 ** power)) {
      const first = Math.floor(bottom / step + ROUNDING), last = Math.ceil(top / step - ROUNDING);
      if (last - first > count) continue;
      const exact = Math.max(-power, 0);
      const ticks = Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toFixed(exact)));
      return { low: ticks[0], high: ticks.at(-1), ticks, labels: ticks.map((tick) => plain(tick, exact)) };
    }
  }
};

class CurveChart {
  constructor(plot) {
    const { from, to, low, high, decimals, span, best, rate, dots, levels } = plot.dataset;
    const numbers = (text) => text ? text.split(" ").map(Number) : [];
    this.plot = plot;
    this.whole = { from: Number(from), to: Number(to) };
    this.range = this.whole;
    this.values = { span: Number(span), best: Number(best ?? Infinity), decimals: Number(decimals) };
    this.wholeAxis = { low: Number(low), high: Number(high) };
    this.axis = this.wholeAxis; // of the values; that of a zoomed curve has ticks
    this.rate = Number(rate) || null;
    this.drawings = Array.from(plot.querySelectorAll("svg[data-box]"));
    this.lines = Array.from(plot.querySelectorAll("[data-frames]"), (line) => ({
      name: line.dataset.name, colour: line.className, dashes: line.dataset.dashes ?? "none",
      frames: numbers(line.dataset.frames), values: numbers(line.dataset.values),
    }));
    const pairs = numbers(dots);
    this.dots = pairs.filter((_, index) => index % 2 === 0).map((frame, index) => [frame, pairs[2 * index + 1]]);
    this.levels = Array.from((levels ?? "").matchAll(/(\S+) (\S+)/g), ([, name, value]) => ({ name, text: value, value: Number(value) }))
      .sort((one, other) => other.value - one.value);
    this.shown = this.whole.from;
    this.marked = null;
    this.selection = null;
    this.touches = new Map();

    this.scales = shape("svg", "layer", { "aria-hidden": "true" }); // axes of a zoomed curve
    this.curves = shape("svg", "layer view", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.fixed = shape("g", ""); // what stays until the range changes: dots and the marker
    this.pointed = shape("g", ""); // what follows the pointer
    this.layer = shape("svg", "layer", { "aria-hidden": "true" });
    this.layer.append(this.fixed, this.pointed);
    this.tip = element("div", "tip");
    this.tip.setAttribute("role", "status");
    this.findFrameLabels();
    this.listen();
    this.steps = this.drawings[0].classList.contains("small") ? 4 : 6;
    const label = this.drawings[0].getAttribute("aria-label");
    const zoomable = this.lines.some((line) => line.frames.length > 2 * MIN_POINTS);
    const help = zoomable ? "use the arrow keys to read values, plus and minus to zoom, 0 to see all" : "use the arrow keys to read values";
    set(plot, { tabindex: 0, role: "group", "aria-label": `${label}; ${help}` });
    this.smallest = zoomable ? this.span(this.whole) / Math.max(...this.lines.map((line) => line.frames.length - 1)) * MIN_POINTS : this.span(this.whole);
    if (zoomable) this.addButtons();
    new ResizeObserver(() => this.draw()).observe(plot);
  }

  span(range = this.range) { return range.to - range.from; }
  get zoomed() { return this.span() < this.span(this.whole); }
  across(frame) { return (frame - this.range.from) / this.span(); }
  up(value) { return (value - this.axis.low) / (this.axis.high - this.axis.low); }
  height(value) { return `${(1 - this.up(value)) * 100}%`; }
  visible(frame) { return frame >= this.range.from - ROUNDING && frame <= this.range.to + ROUNDING; }

  // The rows of labels of the frame axis in each drawing, which are below the plot area: frames, and times.
  findFrameLabels() {
    for (const drawing of this.drawings) {
      const [left, top, width, height] = drawing.dataset.box.split(" ").map((part) => part / 100);
      const { width: wide, height: high } = drawing.viewBox.baseVal;
      const labels = Array.from(drawing.querySelectorAll("text")).filter((text) => {
        const [x, y] = ["x", "y"].map((name) => Number(text.getAttribute(name)));
        return y > (top + height) * high && x >= left * wide - 1 && x <= (left + width) * wide + 1;
      });
      drawing.rows = [...new Set(labels.map((text) => Number(text.getAttribute("y"))))].sort((one, other) => one - other);
    }
  }

  addButtons() {
    const figure = this.plot.closest("figure"), caption = figure.querySelector("figcaption");
    const title = caption.firstElementChild.textContent;
    const bar = element("div", "zoom");
    set(bar, { role: "group", "aria-label": `Zoom of ${title}` });
    this.out = button("−", () => this.zoom(2), { "aria-label": `Zoom out, ${title}` });
    this.reset = button("Reset", () => this.showRange(this.whole), { "aria-label": `Reset zoom, ${title}` });
    const closer = button("+", () => this.zoom(1 / 2), { "aria-label": `Zoom in, ${title}` });
    this.status = element("p", "muted range"); // below the chart, where it moves neither the chart nor the buttons
    this.status.setAttribute("role", "status");
    for (const node of [this.out, this.reset]) node.setAttribute("aria-disabled", "true");
    bar.append(closer, this.out, this.reset);
    caption.append(bar);
    figure.append(this.status);
  }

  // Places the layers on the plot area of the drawing that is visible at this page width.
  place() {
    const drawing = this.drawings.find((one) => one.getClientRects().length);
    if (!drawing) return null;
    const [left, top, width, height] = drawing.dataset.box.split(" ").map((part) => part / 100);
    const box = drawing.getBoundingClientRect();
    const scale = box.width / drawing.viewBox.baseVal.width;
    const font = Number(drawing.getAttribute("font-size")) * scale;
    // Labels of a zoomed curve may be wider than those of the whole one, for which the drawing has room; the panel
    // around it has some more.
    const labels = Math.max(...(this.axis.labels ?? [""]).map((label) => label.length)) * DIGIT * font;
    const inset = Math.max(labels - left * box.width, 0);
    const area = { left: left * box.width + inset, top: top * box.height, width: width * box.width - inset, height: height * box.height };
    for (const layer of [this.scales, this.curves, this.layer]) {
      for (const [name, value] of Object.entries(area)) layer.style[name] = `${value}px`;
    }
    const rows = drawing.rows.map((y) => y * scale - area.top);
    return { ...area, scale, rows, font, hasRoom: !drawing.classList.contains("narrow") };
  }

  draw() {
    const area = this.place();
    this.plot.classList.toggle("zoomed", this.zoomed);
    for (const layer of [this.scales, this.curves, this.fixed]) layer.replaceChildren();
    if (!area) return;
    if (this.zoomed) {
      this.plot.append(this.scales, this.curves);
      this.lines.forEach((line) => this.curves.append(this.path(line)));
      this.drawFrameTicks(area);
      this.drawValueTicks(area);
      this.drawLevels(area);
      for (const [frame, value] of this.dots.filter(([frame]) => this.visible(frame))) this.fixed.append(this.point(frame, value, "c7"));
    } else {
      this.scales.remove();
      this.curves.remove();
    }
    if (this.marked !== null && this.visible(this.marked)) {
      const x = `${this.across(this.marked) * 100}%`;
      const line = shape("line", "marker", { x1: x, x2: x, y1: 0, y2: "100%" });
      const flag = shape("svg", "flag", { x, y: 0 });
      flag.append(shape("path", "", { d: "M-6-7h12l-6 8z" }));
      this.fixed.append(line, flag);
    }
    this.plot.append(this.layer);
  }

  path(line) {
    const first = Math.max(nearest(line.frames, this.range.from) - 1, 0);
    const last = Math.min(nearest(line.frames, this.range.to) + 1, line.frames.length - 1);
    const steps = [];
    for (let index = first; index <= last; index += 1) {
      steps.push(`${(this.across(line.frames[index]) * 1000).toFixed(1)} ${(1000 - this.up(line.values[index]) * 1000).toFixed(1)}`);
    }
    return shape("path", `curve ${line.colour}`, { d: `M${steps.join("L")}`, "stroke-dasharray": line.dashes });
  }

  point(frame, value, colour) {
    return shape("circle", `point ${colour}`, { cx: `${this.across(frame) * 100}%`, cy: this.height(value), r: 4 });
  }

  label(classes, text, attributes) {
    const label = shape("text", classes, attributes);
    label.textContent = text;
    this.scales.append(label);
  }

  drawFrameTicks(area) {
    const { ticks, step } = frameTicks(this.range.from, this.range.to, Math.min(Math.floor(area.width / area.scale / 62), 10));
    for (const tick of ticks) {
      const x = `${this.across(tick) * 100}%`;
      const texts = [grouped(tick), this.rate && clock(tick / this.rate, step >= this.rate ? 0 : 2)];
      area.rows.forEach((y, row) => this.label("tick", texts[row], { x, y, "font-size": area.font - row * area.scale }));
    }
  }

  drawValueTicks(area) {
    this.axis.ticks.forEach((tick, index) => {
      const y = this.height(tick);
      this.scales.append(shape("line", "hair", { x1: 0, x2: "100%", y1: y, y2: y }));
      this.label("value", this.axis.labels[index], { x: -GAP * area.scale, y, "font-size": area.font });
    });
  }

  // The mean and the like, as far as they are near the visible values; two labels that would overlap are moved apart.
  drawLevels(area) {
    const levels = this.levels.filter(({ value }) => value >= this.axis.low && value <= this.axis.high);
    const tight = levels.length > 1 && Math.abs(this.up(levels[0].value) - this.up(levels[1].value)) * area.height < 1.3 * area.font;
    levels.forEach(({ name, text, value }, index) => {
      const y = this.height(value);
      this.scales.append(shape("line", "level", { x1: 0, x2: "100%", y1: y, y2: y }));
      const dy = tight ? (index ? 0.6 : -0.6) * area.font : 0;
      this.label("level", area.hasRoom ? `${name} ${text}` : name, { x: "100%", dx: GAP * area.scale, y, dy, "font-size": area.font });
    });
  }

  hide() {
    this.pointed.replaceChildren();
    this.tip.remove();
  }

  // The index of the frame of a line that is nearest to `wanted` and visible; null if there is none.
  visibleIndex(line, wanted) {
    let index = nearest(line.frames, wanted);
    if (!this.visible(line.frames[index])) index += line.frames[index] < this.range.from ? 1 : -1;
    return this.visible(line.frames[index]) ? index : null;
  }

  show(wanted) {
    const area = this.place();
    const found = this.lines.map((line) => ({ line, index: this.visibleIndex(line, wanted) })).filter(({ index }) => index !== null);
    if (!area || !found.length) return;
    const frames = found.map(({ line, index }) => line.frames[index]);
    this.shown = frames.reduce((best, frame) => Math.abs(frame - wanted) < Math.abs(best - wanted) ? frame : best);
    const time = this.rate ? ` at ${clock(this.shown / this.rate, 3)}` : "";
    this.tip.replaceChildren(element("div", "", `frame ${grouped(this.shown)}${time}`));
    const x = `${this.across(this.shown) * 100}%`;
    this.pointed.replaceChildren(shape("line", "cross", { x1: x, x2: x, y1: 0, y2: "100%" }));
    for (const { line, index } of found) {
      const value = line.values[index];
      this.pointed.append(this.point(line.frames[index], value, line.colour));
      const row = element("div", line.colour);
      row.append(element("i", ""), element("span", "", line.name), element("b", "", value.toFixed(this.values.decimals)));
      this.tip.append(row);
    }
    this.plot.append(this.layer, this.tip);
    const room = this.plot.clientWidth - this.tip.offsetWidth;
    const at = area.left + this.across(this.shown) * area.width;
    this.tip.style.left = `${at + 14 <= room ? at + 14 : Math.max(at - 14 - this.tip.offsetWidth, Math.min(0, room))}px`;
  }

  step(by) {
    const { frames } = this.lines[0];
    const frame = frames[within(nearest(frames, this.shown) + by, 0, frames.length - 1)];
    if (!this.visible(frame)) this.pan(frame < this.range.from ? frame - this.range.from : frame - this.range.to);
    this.show(frame);
  }

  // The lowest and the highest value that can be seen; null where no frame has a finite value.
  extremes() {
    const seen = this.lines.flatMap((line) => line.values.filter((_, index) => this.visible(line.frames[index])));
    const values = [...seen, ...this.dots.filter(([frame]) => this.visible(frame)).map(([, value]) => value)];
    if (!values.length) return null;
    return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  }

  // Shows a range of frames; it is moved into the clip, and made no smaller than a few points.
  showRange({ from, to }) {
    const span = within(to - from, Math.min(this.smallest, this.span(this.whole)), this.span(this.whole));
    const start = within((from + to - span) / 2, this.whole.from, this.whole.to - span);
    this.range = span < this.span(this.whole) ? { from: start, to: start + span } : this.whole;
    const extremes = this.zoomed ? this.extremes() : null;
    const { low, high } = this.wholeAxis;
    this.axis = this.zoomed ? valueAxis(...extremes ?? [low, high], this.values, this.steps) : this.wholeAxis;
    this.draw();
    if (this.status) {
      const [first, last] = [Math.ceil(this.range.from - ROUNDING), Math.floor(this.range.to + ROUNDING)].map(grouped);
      const values = extremes ? `, values ${extremes.map((value) => plain(value, this.values.decimals)).join(" to ")}` : "";
      this.status.textContent = this.zoomed ? `frames ${first} to ${last}${values}` : "";
      for (const node of [this.out, this.reset]) node.setAttribute("aria-disabled", String(!this.zoomed));
    }
    if (this.tip.isConnected) this.show(within(this.shown, this.range.from, this.range.to));
  }

  // `factor` is that of the span; `frame` stays where it is.
  zoom(factor, frame = (this.range.from + this.range.to) / 2) {
    const span = within(this.span() * factor, Math.min(this.smallest, this.span(this.whole)), this.span(this.whole));
    const from = frame - this.across(frame) * span;
    this.showRange({ from, to: from + span });
  }

  pan(by) {
    const from = within(this.range.from + by, this.whole.from, this.whole.to - this.span());
    this.showRange({ from, to: from + this.span() });
  }

  mark(frame) {
    this.marked = frame;
    if (this.zoomed && !this.visible(frame)) this.pan(frame - (this.range.from + this.range.to) / 2);
    else this.draw();
  }

  frameAt(event) {
    this.place();
    this.plot.append(this.layer);
    const box = this.layer.getBoundingClientRect();
    return within(this.range.from + (event.clientX - box.left) / box.width * this.span(), this.range.from, this.range.to);
  }

  listen() {
    const { plot } = this;
    plot.addEventListener("pointerdown", (event) => this.onDown(event));
    plot.addEventListener("pointermove", (event) => this.onMove(event));
    plot.addEventListener("pointerup", (event) => this.onUp(event));
    plot.addEventListener("pointercancel", (event) => this.onUp(event, false));
    plot.addEventListener("pointerleave", () => this.selection || this.hide());
    plot.addEventListener("dblclick", () => this.showRange(this.whole));
    plot.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    plot.addEventListener("focus", () => plot.matches(":focus-visible") && this.show(within(this.shown, this.range.from, this.range.to)));
    plot.addEventListener("blur", () => this.hide());
    plot.addEventListener("keydown", (event) => this.onKey(event));
    plot.addEventListener("mark", (event) => this.mark(event.detail));
  }

  onDown(event) {
    if (event.pointerType === "touch") {
      this.touches.set(event.pointerId, event);
      if (this.touches.size === 2) this.pinched = { ...this.pinch(), span: this.span() };
    } else if (event.button === 0) {
      this.selection = { frame: this.frameAt(event), x: event.clientX };
      this.plot.setPointerCapture(event.pointerId);
    }
    this.show(this.frameAt(event));
  }

  onMove(event) {
    if (this.touches.has(event.pointerId)) this.touches.set(event.pointerId, event);
    if (this.touches.size === 2) {
      const { distance, clientX } = this.pinch();
      const span = within(this.pinched.span * this.pinched.distance / distance, this.smallest, this.span(this.whole));
      const box = this.layer.getBoundingClientRect();
      const from = this.pinched.frame - (clientX - box.left) / box.width * span;
      this.showRange({ from, to: from + span });
      return;
    }
    const frame = this.frameAt(event);
    this.show(frame);
    if (this.selection && Math.abs(event.clientX - this.selection.x) >= DRAG) {
      const [from, to] = [this.selection.frame, frame].sort((one, other) => one - other);
      const [x, width] = [this.across(from), this.across(to) - this.across(from)].map((part) => `${part * 100}%`);
      this.pointed.prepend(shape("rect", "selection", { x, width, y: 0, height: "100%" }));
    }
  }

  onUp(event, completed = true) {
    this.touches.delete(event.pointerId);
    const { selection } = this;
    this.selection = null;
    if (!completed || !selection || Math.abs(event.clientX - selection.x) < DRAG) return;
    const [from, to] = [selection.frame, this.frameAt(event)].sort((one, other) => one - other);
    this.showRange({ from, to });
    this.show(this.frameAt(event));
  }

  pinch() {
    const [one, other] = this.touches.values();
    const clientX = (one.clientX + other.clientX) / 2;
    const distance = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
    return { clientX, distance, frame: this.frameAt({ clientX }) };
  }

  // Browsers report a pinch on a touchpad as a wheel with ctrl.
  onWheel(event) {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.ctrlKey) this.zoom(Math.exp(within(event.deltaY, -100, 100) / 150), this.frameAt(event));
    else if (this.zoomed && Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.pan(sideways / 1000 * this.span());
    else return;
    event.preventDefault();
    this.show(this.frameAt(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const { from, to } = this.range;
    const page = this.span() / 10;
    const tenth = (by) => this.show(within(this.shown + by, from, to));
    const panned = (by) => { this.pan(by * this.span() / 4); this.show(within(this.shown, this.range.from, this.range.to)); };
    const all = () => this.showRange(this.whole);
    const keys = {
      ArrowLeft: () => event.shiftKey ? panned(-1) : this.step(-1),
      ArrowRight: () => event.shiftKey ? panned(1) : this.step(1),
      PageUp: () => tenth(page), PageDown: () => tenth(-page), Home: () => this.show(from), End: () => this.show(to),
      "+": () => this.zoom(1 / 2, this.shown), "=": () => this.zoom(1 / 2, this.shown), "-": () => this.zoom(2, this.shown), "0": all,
      Escape: () => this.zoomed ? all() : this.hide(),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
}

document.querySelectorAll(".plot[data-from]").forEach((plot) => new CurveChart(plot));
