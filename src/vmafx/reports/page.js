"use strict";
// Shows the values under the pointer and switches between light and dark. The page is complete without it.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const element = (name, classes, text = "") => {
    const node = document.createElement(name);
    node.className = classes;
    node.textContent = text;
    return node;
  };
  const shape = (name, classes) => {
    const node = document.createElementNS(SVG, name);
    node.setAttribute("class", classes);
    return node;
  };
  const set = (node, attributes) => {
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  };

  const clock = (seconds) => {
    const whole = Math.floor(seconds + 5e-4);
    const two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(whole / 60);
    const front = minutes < 60 ? minutes : `${Math.floor(minutes / 60)}:${two(minutes % 60)}`;
    const part = Math.max(0, Math.round((seconds - whole) * 1000));
    return `${front}:${two(whole % 60)}.${String(part).padStart(3, "0")}`;
  };

  // Index of the frame nearest to `wanted`; frames are sorted.
  const nearest = (frames, wanted) => {
    let low = 0, high = frames.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (frames[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low > 0 && wanted - frames[low - 1] < frames[low] - wanted ? low - 1 : low;
  };

  const addTooltip = (plot) => {
    const { from, to, low, high, decimals, rate } = plot.dataset;
    const drawings = Array.from(plot.querySelectorAll("svg[data-box]"));
    const across = (frame) => `${(frame - from) / (to - from) * 100}%`;
    const numbers = (text) => text.split(" ").map(Number);
    const lines = Array.from(plot.querySelectorAll("[data-frames]"), (line) => ({
      name: line.dataset.name, colour: line.className,
      frames: numbers(line.dataset.frames), values: numbers(line.dataset.values),
    }));
    const layer = shape("svg", "layer");
    const cross = shape("line", "cross");
    const points = lines.map((line) => shape("circle", `point ${line.colour}`));
    const tip = element("div", "tip");
    tip.setAttribute("role", "status");
    layer.append(cross, ...points);
    let shown = from;

    // Places the layer on the plot area of the drawing that is visible at this page width.
    const placeLayer = () => {
      const drawing = drawings.find((one) => one.getClientRects().length);
      const [left, top, width, height] = drawing.dataset.box.split(" ").map((part) => part / 100);
      const box = drawing.getBoundingClientRect();
      Object.assign(layer.style, {
        left: `${left * box.width}px`, top: `${top * box.height}px`,
        width: `${width * box.width}px`, height: `${height * box.height}px`,
      });
      plot.append(layer);
      return layer.getBoundingClientRect();
    };
    const hide = () => [layer, tip].forEach((node) => node.remove());
    const show = (wanted) => {
      const indexes = lines.map((line) => nearest(line.frames, wanted));
      const frames = lines.map((line, index) => line.frames[indexes[index]]);
      shown = frames.reduce((best, frame) => Math.abs(frame - wanted) < Math.abs(best - wanted) ? frame : best);
      const time = rate ? ` at ${clock(shown / rate)}` : "";
      tip.replaceChildren(element("div", "", `frame ${shown.toLocaleString("en")}${time}`));
      lines.forEach((line, index) => {
        const value = line.values[indexes[index]];
        const up = (value - low) / (high - low) * 100;
        set(points[index], { cx: across(frames[index]), cy: `${100 - up}%`, r: 4 });
        const row = element("div", line.colour);
        row.append(element("i", ""), element("span", "", line.name), element("b", "", value.toFixed(decimals)));
        tip.append(row);
      });
      set(cross, { x1: across(shown), x2: across(shown), y1: 0, y2: "100%" });
      const box = placeLayer();
      plot.append(tip);
      const room = plot.clientWidth - tip.offsetWidth;
      const at = box.left - plot.getBoundingClientRect().left + (shown - from) / (to - from) * box.width;
      tip.style.left = `${at + 14 <= room ? at + 14 : Math.max(at - 14 - tip.offsetWidth, Math.min(0, room))}px`;
    };
    const step = (by) => {
      const frames = lines[0].frames;
      const index = nearest(frames, shown) + by;
      show(frames[Math.min(Math.max(index, 0), frames.length - 1)]);
    };
    const keys = {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => show(from), End: () => show(to), Escape: hide,
    };
    const onPointer = (event) => {
      const box = placeLayer();
      show(Number(from) + (event.clientX - box.left) / box.width * (to - from));
    };
    set(plot, { tabindex: 0, role: "group", "aria-label": `${drawings[0].getAttribute("aria-label")}; use the arrow keys to read values` });
    plot.addEventListener("pointermove", onPointer);
    plot.addEventListener("pointerdown", onPointer);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("focus", () => plot.matches(":focus-visible") && show(shown));
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  };
  document.querySelectorAll(".plot[data-from]").forEach(addTooltip);

  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const updateButton = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    updateButton();
  });
  system.addEventListener("change", updateButton);
  updateButton();
})();
