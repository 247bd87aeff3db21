// @vitest-environment jsdom
import { afterEach, describe, expect, it, vi } from "vitest";
import { documentOf } from "../render/svg.ts";
import { el } from "./dom.ts";
import { drawnAs, stack, stillOf } from "./still.ts";

const BOX = { left: 10, top: 20, right: 110, bottom: 70, width: 100, height: 50, x: 10, y: 20 };

/** jsdom lays nothing out: every element and text has the same place. */
function laidOut(root: HTMLElement): SVGSVGElement {
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockReturnValue(BOX as DOMRect);
  Range.prototype.getBoundingClientRect = () => BOX as DOMRect;
  Range.prototype.getClientRects = () => [BOX] as unknown as DOMRectList;
  document.body.replaceChildren(root);
  const found = new DOMParser().parseFromString(stillOf(root) ?? "", "image/svg+xml");
  expect(found.querySelector("parsererror")).toBeNull();
  return found.documentElement as unknown as SVGSVGElement;
}

afterEach(() => vi.restoreAllMocks());

const texts = (svg: Element): string[] => [...svg.querySelectorAll("text")].map((each) => each.textContent ?? "");

describe("a still", () => {
  it("has the texts, grounds and borders of what is shown, and nothing of what is hidden or passing", () => {
    const style = { background: "rgb(1, 2, 3)", border: "2px solid rgb(4, 5, 6)" };
    const root = el(
      "div",
      el("p", { style }, "shown <b>"),
      el("p", { style: { display: "none" } }, "hidden"),
      el("p.onnx-nb-tooltip", "passing"),
      el("input", { type: "text", placeholder: "Filter" }),
    );
    const svg = laidOut(root);
    expect(texts(svg)).toEqual(["shown <b>", "Filter"]);
    const [ground] = svg.querySelectorAll('rect[fill="#010203"]');
    expect(ground.getAttribute("stroke")).toBe("#040506");
    expect([svg.getAttribute("width"), svg.getAttribute("height")]).toEqual(["100", "50"]);
  });

  it("lets a canvas draw itself, and leaves out one that cannot", () => {
    const canvas = el("canvas");
    drawnAs(canvas, () => documentOf(30, 40, '<circle r="3"/>'));
    const svg = laidOut(el("div", canvas, el("canvas")));
    const found = svg.querySelectorAll('svg[viewBox="0 0 30 40"]');
    expect(found).toHaveLength(1);
    const [inner] = found;
    expect([inner.getAttribute("width"), inner.getAttribute("height")]).toEqual(["100", "50"]);
    expect(inner.querySelector("circle")).not.toBeNull();
  });

  it("is inert for any text", () => {
    const hostile = ['"><image href="x" onerror="a()"/>', "<script>alert(1)</script>", "a\u0000b\ud800c"];
    const svg = laidOut(el("div", ...hostile.map((text) => el("p", text))));
    expect(svg.querySelectorAll("script, image, foreignObject, a")).toHaveLength(0);
    expect(texts(svg)).toHaveLength(3);
  });

  it("is stacked on one ground, without parts that are not shown", () => {
    const both = stack([documentOf(100, 50, ""), null, documentOf(60, 80, "")], "white");
    const found = new DOMParser().parseFromString(both, "image/svg+xml").documentElement;
    expect([found.getAttribute("width"), found.getAttribute("height")]).toEqual(["100", "138"]);
    expect([...found.querySelectorAll("svg")].map((each) => each.getAttribute("y"))).toEqual(["0", "58"]);
  });
});
