/**
 * Times scopes and layouts, warm, best of several runs: `npm run bench -- packed.bin …` (files written with
 * `onnx_nb.analysis.view.graph_columns.columns(model).to_bytes()`), and two synthetic graphs.
 */

import { readFileSync } from "node:fs";
import { buildScene, createCache } from "./layout/build.ts";
import { unpack } from "./protocol/codec.ts";
import { Columns } from "./protocol/columns.ts";
import { columnsOf, measure } from "./protocol/testing.ts";
import { defaultOpen } from "./scene/opening.ts";
import type { Scene } from "./scene/scene.ts";

function best(runs: number, run: () => void): number {
  const times = Array.from({ length: runs }, () => {
    const start = performance.now();
    run();
    return performance.now() - start;
  });
  return Math.min(...times);
}

function report(name: string, columns: Columns): void {
  const everything = new Set(Array.from({ length: columns.scopeCount }, (_, scope) => scope));
  const atFirst = defaultOpen(columns);
  const line = (what: string, open: ReadonlySet<number>): void => {
    let scene: Scene | undefined;
    const runs = columns.nodeCount > 20000 ? 3 : 15;
    const cache = createCache();
    const cold = best(1, () => {
      scene = buildScene(columns, open, measure, cache);
    });
    const layout = best(runs, () => {
      cache.forgetLayouts();
      buildScene(columns, open, measure, cache);
    });
    const again = best(runs, () => buildScene(columns, open, measure, cache));
    const { boxes, edges, bounds } = scene as Scene;
    console.log(
      `${name.padEnd(28)} ${what.padEnd(8)} ${String(boxes.count).padStart(7)} boxes ${String(edges.count).padStart(7)} edges` +
        `  first ${cold.toFixed(1).padStart(7)} ms  layout ${layout.toFixed(1).padStart(7)} ms` +
        `  cached ${again.toFixed(1).padStart(6)} ms  ${Math.round(bounds.w)}×${Math.round(bounds.h)}`,
    );
  };
  line("at first", atFirst);
  line("all open", everything);
}

/** Returns a flat chain of blocks, each with a residual connection. */
function chain(nodes: number): Columns {
  const lines = ["input v0 batch×768 float32"];
  for (let i = 0; i < nodes; i++) {
    lines.push(i % 10 === 9 ? `Add n${i} : v${i} v${i - 8} -> v${i + 1}` : `Relu n${i} : v${i} -> v${i + 1}`);
  }
  return columnsOf([...lines, `output v${nodes}`].join("\n"));
}

for (const file of process.argv.slice(2)) {
  report(file.replace(/^.*\//, ""), new Columns(await unpack(new Uint8Array(readFileSync(file)))));
}
report("chain of 60", chain(60));
report("chain of 50,000", chain(50_000));
