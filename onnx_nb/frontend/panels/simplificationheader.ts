/** What is shown above the graphs of a simplification: the verdict, what was left out on request, and the steps. */

import type { Account } from "../protocol/simplification.ts";
import { bytes, counted, plain } from "../scene/formatting.ts";
import { button, el, elide, fillings, focused, on } from "./dom.ts";
import type { KernelButtons } from "./kernelbuttons.ts";

export interface SimplificationHeader {
  /** name, verdict and sizes, for the bar */
  readonly summary: readonly HTMLElement[];
  /** how the result was verified */
  readonly report: HTMLElement;
  readonly skips: HTMLElement;
  readonly steps: HTMLElement;
  update(account: Account, step: number): void;
}

const VERDICTS = {
  verified: ["✓ Verified", "onnx-nb-fine"],
  wrong: ["✕ Not the same", "onnx-nb-bad"],
  unchecked: ["! Not verified", "onnx-nb-caution"],
} as const;
/** Changes that were left out of which each has a button. */
const SKIPPED = 60;
/** Outputs that differ of which each is described. */
const OUTPUTS = 8;

export interface HeaderEvents {
  /** makes a change that was left out again, or all for null */
  redo(key: string | null): void;
  turn(step: number): void;
}

export function createSimplificationHeader(
  kernel: KernelButtons,
  { redo, turn }: HeaderEvents,
  signal: AbortSignal,
): SimplificationHeader {
  const name = el("b.onnx-nb-name");
  const verdict = el("span");
  const sizes = el("span.onnx-nb-dim.onnx-nb-ellipsis");
  const report = el("div.onnx-nb-strip", { role: "status" });
  const skips = el("div.onnx-nb-strip.onnx-nb-skips", { role: "group", "aria-label": "Left out" });
  const steps = el("div.onnx-nb-strip.onnx-nb-steps", { role: "tablist", "aria-label": "Steps" });
  const filling = fillings(signal);
  let shown = 0;

  const showSummary = (account: Account): void => {
    const [text, style] = VERDICTS[account.verdict];
    const [before, after] = account.nodes;
    const [was, is] = account.bytes.map(bytes);
    name.textContent = elide(account.name, 48);
    name.title = account.name;
    verdict.className = `onnx-nb-verdict ${style}`;
    verdict.textContent = text;
    const weights = account.bytes[0] === account.bytes[1] ? was : `${was} → ${is}`;
    sizes.textContent = `${plain(before)} → ${counted(after, "node")}, weights ${weights}`;
    report.replaceChildren(el("span.onnx-nb-message-text", elide(account.said, 600)));
    report.classList.toggle("onnx-nb-alert", account.verdict === "wrong");
    const off = account.outputs
      .filter(([, , outside]) => outside > 0)
      .slice(0, OUTPUTS)
      .map(([output, most, n, of]) => `${elide(output, 60)}: up to ${most} in ${plain(n)} of ${plain(of)}`);
    if (off.length > 0) report.append(el("span.onnx-nb-dim.onnx-nb-message-text", off.join("; ")));
  };
  const showSkips = ({ skipped }: Account, round: AbortSignal): void => {
    skips.hidden = skipped.length === 0;
    const again = (key: string): HTMLElement =>
      kernel.create(`↻ ${elide(key, 60)}`, () => redo(key), round, {
        class: "onnx-nb-small",
        hint: `Make this change again: ${key}`.slice(0, 1000),
        "aria-label": `Redo ${elide(key, 120)}`,
      });
    skips.replaceChildren(el("span.onnx-nb-dim", `Left out: ${plain(skipped.length)}`));
    skips.append(...skipped.slice(0, SKIPPED).map(again));
    if (skipped.length > 1) {
      const hint = "Make all changes that were undone again";
      skips.append(kernel.create("Redo all", () => redo(null), round, { class: "onnx-nb-small", hint }));
    }
  };
  const showSteps = (account: Account, step: number, round: AbortSignal): void => {
    const names = ["All", ...account.steps.slice(1).map(([text], at) => `${at + 1}. ${elide(text, 40)}`)];
    const inside = steps.contains(document.activeElement) || [...steps.children].some(focused);
    shown = step;
    steps.hidden = names.length < 2;
    steps.replaceChildren(
      ...names.map((text, at) =>
        button(text, () => turn(at), round, {
          class: "onnx-nb-small",
          title: at === 0 ? "The result next to the original" : "The model after this step next to the one before it",
          role: "tab",
          "aria-selected": at === step,
          tabindex: at === step ? 0 : -1,
        }),
      ),
    );
    if (inside) (steps.children[step] as HTMLElement | undefined)?.focus();
  };
  on(steps, "keydown", signal, (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    turn((shown + by + steps.children.length) % steps.children.length);
  });

  return {
    summary: [name, verdict, sizes],
    report,
    skips,
    steps,
    update(account, step) {
      const round = filling();
      showSummary(account);
      showSkips(account, round);
      showSteps(account, step, round);
    },
  };
}
