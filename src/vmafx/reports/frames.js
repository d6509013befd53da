// Worst frames: one pair at a time, side by side, with a wipe or as their difference, in place of the list of pairs.
const MODES = { side: "Side by side", wipe: "Wipe", difference: "Difference" };
const SLIDERS = {
  wipe: { label: "Wipe position", min: 0, max: 100, value: 50, property: "--at", unit: "%" },
  difference: { label: "Gain", min: 1, max: 16, value: 4, property: "--gain", unit: "×" },
};

class FrameViewer {
  constructor(panel) {
    this.pairs = Array.from(panel.querySelectorAll("figure"), (figure) => {
      const caption = figure.querySelector("figcaption");
      return {
        frame: Number(figure.dataset.frame), score: caption.querySelector("b").textContent,
        position: caption.lastChild.textContent.trim(), images: Array.from(figure.querySelectorAll("img")),
      };
    });
    this.curve = panel.closest("section").querySelector(".plot[data-from]");
    this.stage = element("div", "stage");
    set(this.stage, { tabindex: 0, role: "group" });
    this.images = ["Reference", "Distorted"].map((side) => {
      const picture = element("div", "picture");
      const image = element("img", "");
      image.draggable = false;
      picture.append(element("span", "side", side), image);
      this.stage.append(picture);
      return image;
    });
    this.status = element("p", "muted");
    this.status.setAttribute("role", "status");
    this.previous = button("Previous", () => this.show(this.index - 1));
    this.next = button("Next", () => this.show(this.index + 1));
    this.modes = Object.entries(MODES).map(([mode, text]) => [mode, button(text, () => this.choose(mode))]);
    this.sliders = Object.fromEntries(Object.entries(SLIDERS).map(([mode, slider]) => [mode, this.slider(slider)]));
    const bar = element("div", "bar");
    bar.append(this.group("Frame", this.previous, this.next), this.group("View", ...this.modes.map(([, node]) => node)));
    const viewer = element("div", "viewer");
    viewer.append(bar, this.status, this.stage, ...Object.values(this.sliders).map((slider) => slider.row));
    viewer.addEventListener("keydown", (event) => this.onKey(event));
    this.stage.addEventListener("pointerdown", (event) => this.onPointer(event));
    this.stage.addEventListener("pointermove", (event) => event.buttons && this.onPointer(event));
    panel.classList.add("viewing");
    panel.append(viewer);
    this.index = 0;
    this.choose("side");
  }

  group(label, ...nodes) {
    const group = element("div", "group");
    set(group, { role: "group", "aria-label": label });
    group.append(...nodes);
    return group;
  }

  slider({ label, min, max, value, property, unit }) {
    const row = element("label", "slider", label);
    const input = element("input", "");
    const output = element("span", "muted");
    set(input, { type: "range", min, max, value });
    const update = () => {
      this.stage.style.setProperty(property, unit === "%" ? `${input.value}%` : input.value);
      output.textContent = unit === "%" ? `${input.value} %` : `${unit} ${input.value}`;
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.addEventListener("input", update);
    row.append(input, output);
    update();
    return { row, input, update };
  }

  choose(mode) {
    this.mode = mode;
    this.stage.dataset.mode = mode;
    for (const [name, node] of this.modes) node.setAttribute("aria-pressed", String(name === mode));
    for (const [name, { row }] of Object.entries(this.sliders)) row.hidden = name !== mode;
    this.show(this.index);
  }

  show(index) {
    this.index = within(index, 0, this.pairs.length - 1);
    const { frame, score, position, images } = this.pairs[this.index];
    this.images.forEach((image, side) => {
      for (const name of ["width", "height", "alt", "src"]) set(image, { [name]: images[side].getAttribute(name) });
    });
    this.status.replaceChildren(element("b", "", score), ` ${position} · ${this.index + 1} of ${this.pairs.length} · ${MODES[this.mode].toLowerCase()}`);
    this.stage.setAttribute("aria-label", `Worst frames, ${MODES[this.mode].toLowerCase()}; use the arrow keys, or N and P, for the next and previous`);
    this.previous.setAttribute("aria-disabled", String(this.index === 0));
    this.next.setAttribute("aria-disabled", String(this.index === this.pairs.length - 1));
    this.curve.dispatchEvent(new CustomEvent("mark", { detail: frame }));
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const sliding = event.target.matches("input");
    const keys = {
      n: () => this.show(this.index + 1), p: () => this.show(this.index - 1),
      ...(sliding ? {} : {
        arrowright: () => this.show(this.index + 1), arrowleft: () => this.show(this.index - 1),
        home: () => this.show(0), end: () => this.show(this.pairs.length - 1),
      }),
    };
    const key = event.key.toLowerCase();
    if (!Object.hasOwn(keys, key)) return;
    event.preventDefault();
    keys[key]();
  }

  onPointer(event) {
    if (this.mode !== "wipe") return;
    const box = this.stage.getBoundingClientRect();
    this.sliders.wipe.input.value = within((event.clientX - box.left) / box.width * 100, 0, 100);
    this.sliders.wipe.update();
    if (event.type === "pointerdown") this.stage.setPointerCapture(event.pointerId);
  }
}

document.querySelectorAll(".worst").forEach((panel) => new FrameViewer(panel));
