// @vitest-environment jsdom
import { expect, it } from "vitest";
import { el } from "./dom.ts";
import { createMenu } from "./menu.ts";

it("moves to the right where the left edge of its panel would clip it", () => {
  const menu = createMenu("Save", "Pictures", new AbortController().signal);
  const panel = el("div.onnx-nb", menu.element);
  const list = menu.element.querySelector<HTMLElement>(".onnx-nb-menu");
  if (list === null) throw new Error("no list");
  panel.getBoundingClientRect = () => new DOMRect(100, 0, 300, 200);
  list.getBoundingClientRect = () => new DOMRect(59.5, 0, 120, 80);
  menu.toggle();
  expect(list.style.right).toBe("-41px");
  menu.toggle();
  list.getBoundingClientRect = () => new DOMRect(200, 0, 120, 80);
  menu.toggle();
  expect(list.style.right).toBe("");
});
