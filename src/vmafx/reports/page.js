// What all scripts of a page use, and the switch between light and dark. The page is complete without scripts.
const SVG = "http://www.w3.org/2000/svg";

const set = (node, attributes) => {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
};
const element = (name, classes, text = "") => {
  const node = document.createElement(name);
  node.className = classes;
  node.textContent = text;
  return node;
};
const shape = (name, classes, attributes = {}) => {
  const node = document.createElementNS(SVG, name);
  set(node, { class: classes, ...attributes });
  return node;
};
const button = (text, action, attributes = {}) => {
  const node = element("button", "", text);
  set(node, { type: "button", ...attributes });
  // A disabled button would lose the focus, so one without effect stays a button.
  node.addEventListener("click", () => node.getAttribute("aria-disabled") !== "true" && action());
  return node;
};
const within = (value, low, high) => Math.min(Math.max(value, low), high);

{
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const update = () => { toggle.textContent = dark() ? "Light" : "Dark"; };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    update();
  });
  system.addEventListener("change", update);
  update();
}
