import { describe, expect, test } from "vitest";
import { buildScene, createCache } from "../layout/build.ts";
import { columnsOf, measure, scopeAt } from "../protocol/testing.ts";
import { TEXT } from "../scene/labels.ts";
import { HitIndex } from "./hit.ts";
import { Titles } from "./titles.ts";

const COLUMNS = columnsOf(`
input x 4 float32
${Array.from({ length: 60 }, (_, i) => `Relu encoder/layers.${i > 29 ? 1 : 0}/relu${i} : ${i === 0 ? "x" : `v${i - 1}`} -> v${i}`).join("\n")}
Relu decoder/last : v59 -> y
output y
`);
const [ENCODER, LAYER, DECODER] = ["encoder", "encoder/layers.0", "decoder"].map((path) => scopeAt(COLUMNS, path));
const SCENE = buildScene(COLUMNS, new Set([0, ENCODER, LAYER]), measure, createCache(), { room: { w: 500, h: 300 } });
const boxAt = (scope: number): number => SCENE.boxOf("scope", scope);

describe("titles", () => {
  test.each([1, 0.5, 0.3, 0.2])("keep their size on screen at zoom %d", (k) => {
    const title = new Titles(SCENE, measure, k).of(boxAt(ENCODER));
    expect(title?.text).toBe("encoder");
    expect(((title?.right ?? 0) - (title?.left ?? 0)) * k).toBeCloseTo(measure("encoder", TEXT.title, true));
    expect(((title?.bottom ?? 0) - (title?.top ?? 0)) * k).toBeCloseTo(15);
  });

  test("do not cover the title of an outer scope, and are where they can be clicked", () => {
    const k = 0.3;
    const titles = new Titles(SCENE, measure, k);
    const hits = new HitIndex(SCENE, measure);
    const bottom = titles.of(boxAt(ENCODER))?.bottom ?? Number.NaN;
    expect(titles.of(boxAt(LAYER))?.top).toBeGreaterThanOrEqual(bottom);
    for (const id of [ENCODER, LAYER]) {
      const { left = 0, top = 0, bottom = 0 } = titles.of(boxAt(id)) ?? {};
      const middle = (top + bottom) / 2;
      expect(hits.hit(left + 5, middle, 1, k)).toMatchObject({ part: "box", target: { kind: "scope", id } });
      expect(hits.hit(left - 20, middle, 1, k)).toMatchObject({ part: "toggle", target: { kind: "scope", id } });
    }
  });

  test("are all that a small closed scope shows, and nothing where there is no room", () => {
    expect(new Titles(SCENE, measure, 1).of(boxAt(DECODER))).toBeNull();
    expect(new Titles(SCENE, measure, 0.57).of(boxAt(DECODER))?.text).toBe("decoder");
    expect(new Titles(SCENE, measure, 0.01).of(boxAt(ENCODER))).toBeNull();
  });
});
