"use strict";
// The page reads well without this: it only tells the values under the pointer, and switches light and dark.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const element = (name, classes, text = "") => {
    const made = document.createElement(name);
    made.className = classes;
    made.textContent = text;
    return made;
  };
  const shape = (name, classes) => {
    const made = document.createElementNS(SVG, name);
    made.setAttribute("class", classes);
    return made;
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

  // The place of the frame nearest to the one asked for; frames are in order.
  const nearest = (frames, asked) => {
    let low = 0, high = frames.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (frames[middle] < asked) low = middle + 1; else high = middle;
    }
    return low > 0 && asked - frames[low - 1] < frames[low] - asked ? low - 1 : low;
  };

  const follow = (plot) => {
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

    // The layer lies on the plot area of the drawing that the page is wide enough for.
    const lay = () => {
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
    const show = (asked) => {
      const places = lines.map((line) => nearest(line.frames, asked));
      const frames = lines.map((line, index) => line.frames[places[index]]);
      shown = frames.reduce((best, frame) => Math.abs(frame - asked) < Math.abs(best - asked) ? frame : best);
      const time = rate ? ` at ${clock(shown / rate)}` : "";
      tip.replaceChildren(element("div", "", `frame ${shown.toLocaleString("en")}${time}`));
      lines.forEach((line, index) => {
        const value = line.values[places[index]];
        const up = (value - low) / (high - low) * 100;
        set(points[index], { cx: across(frames[index]), cy: `${100 - up}%`, r: 4 });
        const row = element("div", line.colour);
        row.append(element("i", ""), element("span", "", line.name), element("b", "", value.toFixed(decimals)));
        tip.append(row);
      });
      set(cross, { x1: across(shown), x2: across(shown), y1: 0, y2: "100%" });
      const box = lay();
      plot.append(tip);
      const room = plot.clientWidth - tip.offsetWidth;
      const at = box.left - plot.getBoundingClientRect().left + (shown - from) / (to - from) * box.width;
      tip.style.left = `${at + 14 <= room ? at + 14 : Math.max(at - 14 - tip.offsetWidth, Math.min(0, room))}px`;
    };
    const step = (by) => {
      const frames = lines[0].frames;
      const place = nearest(frames, shown) + by;
      show(frames[Math.min(Math.max(place, 0), frames.length - 1)]);
    };
    const keys = {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => show(from), End: () => show(to), Escape: hide,
    };
    const point = (event) => {
      const box = lay();
      show(Number(from) + (event.clientX - box.left) / box.width * (to - from));
    };
    set(plot, { tabindex: 0, role: "group", "aria-label": `${drawings[0].getAttribute("aria-label")}; arrow keys tell the values` });
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("focus", () => plot.matches(":focus-visible") && show(shown));
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  };
  document.querySelectorAll(".plot[data-from]").forEach(follow);

  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();
})();
