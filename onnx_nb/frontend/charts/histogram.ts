/** Statistics of a tensor as text, and its histogram as bars. */

import type { StatisticsReply } from "../protocol/wire.ts";
import { countOf, formatNumber, integer } from "../scene/formatting.ts";
import { el, facts, svg } from "../ui/dom.ts";

/** Maximum number of bars. */
const BARS = 64;

export function statistics(reply: StatisticsReply): Node[] {
  const odd = reply.nan + reply.posinf + reply.neginf;
  const share = reply.count > 0 ? `${Number(((100 * reply.zeros) / reply.count).toPrecision(3))}%` : "–";
  const oddText = odd > 0 ? `${integer(reply.nan)} NaN, ${integer(reply.posinf + reply.neginf)} Inf` : "none";
  return [
    ...(reply.source === "" ? [] : [el("div.onnx-nb-dim", reply.source)]),
    ...(reply.counts.length > 1 ? [histogram(reply)] : []),
    facts([
      ["mean ± std", `${valueText(reply.mean)} ± ${valueText(reply.std)}`],
      ["min, max", `${valueText(reply.min)}, ${valueText(reply.max)}`],
      ["NaN or Inf", odd > 0 ? el("span.onnx-nb-mono.onnx-nb-bad", oddText) : oddText],
      ["zeros", share],
    ]),
  ];
}

/** Ratio of the tallest bar to the lowest one above which heights are logarithmic. */
const STEEP = 300;

/** Returns whether bars need logarithmic heights, and the height of a count as a part of the tallest one. */
export function heights(counts: readonly number[], fitting = true) {
  const max = Math.max(...counts);
  const steep = fitting && Math.min(...counts.map((count) => count || max)) * STEEP < max;
  const part = (count: number): number => (steep ? Math.log1p(count) / Math.log1p(max) : count / max) || 0;
  return { max, steep, part };
}

export function histogram(
  { counts, edges }: Pick<StatisticsReply, "counts" | "edges">,
  scale: "linear" | "fitting" = "linear",
): HTMLElement {
  const barSize = Math.ceil(counts.length / BARS);
  const bars: { readonly count: number; readonly from: number; readonly to: number }[] = [];
  for (let at = 0; at < counts.length; at += barSize) {
    const count = counts.slice(at, at + barSize).reduce((sum, part) => sum + part, 0);
    bars.push({ count, from: edges[at], to: edges[Math.min(at + barSize, counts.length)] });
  }
  const barCounts = bars.map(({ count }) => count);
  const { max, steep, part } = heights(barCounts, scale === "fitting");
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const zero = -first / (last - first);
  const digits = valueText(first) === valueText(last) && first !== last ? 8 : 4;
  const end = (x: number): string => formatNumber(x, digits);
  const label = `Histogram from ${end(first)} to ${end(last)}, at most ${integer(max)} in a bar`;
  const tallest = `tallest bar: ${countOf(max, "value")}${steep ? ", heights logarithmic" : ""}`;
  return el(
    "div.onnx-nb-histogram",
    { role: "img", "aria-label": label },
    el("div.onnx-nb-dim.onnx-nb-tallest", tallest),
    el(
      "div.onnx-nb-bars",
      ...bars.map(({ count, from, to }) =>
        el("i", {
          title: `${valueText(from)} … ${valueText(to)}: ${integer(count)}`,
          style: { height: `${count === 0 ? 0 : Math.max(2, 100 * part(count))}%` },
        }),
      ),
    ),
    el(
      "div.onnx-nb-scale-ends",
      el("span", end(first)),
      zero > 0.2 && zero < 0.8 ? el("span.onnx-nb-zero", { style: { left: `${100 * zero}%` } }, "0") : null,
      el("span", end(last)),
    ),
  );
}

/** Returns "0.0021", "−3.11" or "1.2e−8"; numbers that JSON cannot hold arrive as text. */
export function valueText(x: number | string): string {
  return typeof x === "string" && x !== "nan" ? x.replace("-", "−") : formatNumber(Number(x), 4);
}

/** Returns counts as a small picture, whose full height is the count `most`; a bad one is red. */
export function spark(counts: ArrayLike<number>, max: number, isFault = false): SVGElement {
  const bar = (count: number, at: number): string =>
    count === 0 ? "" : `M${at} 16v${-Math.max(0.7, (16 * count) / max).toFixed(1)}h0.9V16z`;
  const attributes = {
    class: `onnx-nb-spark${isFault ? " onnx-nb-spark-bad" : ""}`,
    viewBox: `0 0 ${counts.length} 16`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  };
  return svg("svg", attributes, svg("path", { d: Array.from(counts, bar).join("") }));
}
