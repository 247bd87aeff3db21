/**
 * What a simplification did: whether it was verified, every change with its reason, and original and result side by
 * side. A chosen change shows in both graphs; it can be undone and made again, and the result saved.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { SideOf } from "../protocol/diff.ts";
import { failureText, type GraphHost, type Selected } from "../protocol/host.ts";
import type { Account, SimplificationData } from "../protocol/simplification.ts";
import { type DiffStatus, SIGNS } from "../scene/diffstatus.ts";
import { bytes, counted, plain } from "../scene/formatting.ts";
import { type ChangeList, createChangeList } from "./changelist.ts";
import { button, copyButton, el, elide, fillings, focused, on, onAbort } from "./dom.ts";
import { createGraphPair, type GraphPair } from "./graphpair.ts";
import { KernelButtons } from "./kernelbuttons.ts";
import { createSaveBar, type SaveBar, type Saved } from "./savebar.ts";
import { other } from "./synchronizer.ts";
import { createTaskBar, type OnProgress, type TaskBar } from "./task.ts";

export interface SimplificationHost {
  readonly live: boolean;
  /** why nothing can be changed or saved where it is not live */
  readonly reason?: string;
  /** both graphs and what differs between them; of a step, 0 for the whole */
  load(step: number): Promise<Loaded>;
  graph(side: SideOf, step: number): GraphHost;
  /** simplifies again without what is named; the new result arrives by `show` */
  again(skipped: readonly string[], progress: OnProgress, signal: AbortSignal): Promise<string>;
  save(path: string, replace: boolean, signal: AbortSignal): Promise<Saved>;
  chosen(key: string): void;
  /** what a person selected in one of the graphs */
  selected?(side: SideOf, selection: readonly Selected[]): void;
  stepped(step: number): void;
  synced(synced: boolean): void;
  picture(svg: string): void;
}

interface Loaded {
  readonly columns: readonly [Columns, Columns];
  readonly data: SimplificationData;
}

/** What is shown of one step. */
interface Shown extends Loaded {
  readonly step: number;
  readonly changes: ChangeList;
  readonly pair: GraphPair;
}

export interface SimplificationOptions {
  /** pixels of each graph */
  readonly height: number;
  readonly step: number;
  readonly synced: boolean;
  /** key of the chosen change, "" for none */
  readonly chosen: string;
}

/** The handle that tests and tools find at the root element. */
export interface SimplificationView {
  readonly pair: GraphPair | null;
  readonly data: SimplificationData | null;
  /** Shows another result, at one of its steps. */
  show(account: Account, step: number): void;
  turn(step: number): void;
  choose(key: string): void;
  setSynced(synced: boolean): void;
  setLive(live: boolean): void;
}

const NO_ANSWER = "The kernel does not answer: it is busy, or this notebook was opened without one.";

export function createSimplification(
  root: HTMLElement,
  account: Account,
  host: SimplificationHost,
  options: SimplificationOptions,
  signal: AbortSignal,
): SimplificationView {
  return new View(root, account, host, options, signal);
}

class View implements SimplificationView {
  readonly #root: HTMLElement;
  readonly #host: SimplificationHost;
  readonly #height: number;
  readonly #signal: AbortSignal;
  readonly #kernel = new KernelButtons();
  readonly #header: SimplificationHeader;
  readonly #saveBar: SaveBar;
  readonly #task: TaskBar;
  readonly #main = el("div.onnx-nb-simplified");
  readonly #announcer = el("div.onnx-nb-voice", { "aria-live": "polite" });
  readonly #filling: () => AbortSignal;
  #account: Account;
  #step: number;
  #synced: boolean;
  #live: boolean;
  #busy = false;
  #shown: Shown | null = null;
  /** key of the change that is chosen, or will be once it is loaded */
  #wanted: string;
  /** the tensor of what was undone last; it is shown once the new result is there */
  #undoneAt = "";

  constructor(
    root: HTMLElement,
    account: Account,
    host: SimplificationHost,
    options: SimplificationOptions,
    signal: AbortSignal,
  ) {
    this.#root = root;
    this.#host = host;
    this.#height = options.height;
    this.#signal = signal;
    this.#account = account;
    this.#step = options.step < this.#stepCount ? options.step : 0;
    this.#synced = options.synced;
    this.#wanted = options.chosen;
    this.#live = host.live;
    this.#filling = fillings(signal);
    const turn = (step: number): void => {
      if (step === this.#step) return;
      this.turn(step);
      host.stepped(step);
    };
    this.#header = createSimplificationHeader(this.#kernel, { redo: (key) => this.#redo(key), turn }, signal);
    const save = (path: string, replace: boolean): Promise<Saved> => host.save(path, replace, signal);
    this.#saveBar = createSaveBar(() => this.#account.path, save, this.#kernel, signal);
    const announce = (text: string): void => this.#announce(text);
    this.#task = createTaskBar((busy) => this.#enable(busy), announce, signal);
    const copy = copyButton(() => this.#account.call, signal, "Copy Python");
    const { summary, report, skips, steps } = this.#header;
    root.classList.add("onnx-nb-simplification");
    root.replaceChildren(
      el("header.onnx-nb-bar", ...summary, el("div.onnx-nb-tools", copy, this.#saveBar.opener)),
      ...[report, this.#saveBar.element, this.#task.element, skips, steps, this.#main, this.#announcer],
    );
    this.#listenKeys();
    Object.assign(root, { onnxNb: this });
    this.#update();
  }

  get pair(): GraphPair | null {
    return this.#shown?.pair ?? null;
  }

  get data(): SimplificationData | null {
    return this.#shown?.data ?? null;
  }

  readonly show = (account: Account, step: number): void => {
    this.#account = account;
    this.#step = step;
    this.#update();
  };

  readonly turn = (step: number): void => {
    if (step === this.#step || step >= this.#stepCount) return;
    this.#step = step;
    this.#update();
  };

  readonly choose = (key: string): void => {
    if (key === this.#wanted || this.#shown === null) return;
    this.#wanted = key;
    this.#choose(this.#shown.data.find(key));
  };

  readonly setSynced = (on: boolean): void => {
    this.#synced = on;
    this.pair?.setSynced(on);
  };

  readonly setLive = (live: boolean): void => {
    this.#live = live;
    for (const view of this.pair?.views ?? []) view.dispatch({ type: "live", live });
    this.#enable();
  };

  get #stepCount(): number {
    return Math.max(1, this.#account.steps.length);
  }

  #announce(text: string): void {
    this.#announcer.textContent = elide(text, 300);
  }

  /** What needs the kernel can be pressed while it answers and does nothing else. */
  #enable(busy = this.#busy): void {
    this.#busy = busy;
    const reason = this.#live ? null : (this.#host.reason ?? NO_ANSWER);
    this.#kernel.update(busy, reason);
    this.#saveBar.update(reason);
    this.#root.setAttribute("aria-busy", String(busy));
  }

  // ---------------------------------------------------------------- loading

  #update(): void {
    this.#header.update(this.#account, this.#step);
    this.#enable();
    void this.#load(this.#filling());
  }

  async #load(round: AbortSignal): Promise<void> {
    const step = this.#step;
    const open = this.#shown?.step === step ? [...this.#shown.pair.views[0].state.open] : undefined;
    this.#root.dataset.state = "loading";
    try {
      const loaded = await this.#host.load(step);
      if (!round.aborted) this.#fill(loaded, step, open, round);
    } catch (error) {
      if (round.aborted) return;
      this.#root.dataset.state = "error";
      this.#main.replaceChildren(el("p.onnx-nb-nothing", { role: "alert" }, failureText(error)));
    }
  }

  #fill(loaded: Loaded, step: number, open: readonly number[] | undefined, round: AbortSignal): void {
    const events = {
      chosen: (row: number): void => this.#choose(row),
      activated: (row: number): void => this.#showChange(row),
      undo: (key: string): void => this.#undo(key),
    };
    const changes = createChangeList(this.#account, loaded.data, loaded.columns, this.#kernel, events, round);
    const pairRoot = el("div.onnx-nb-inner");
    this.#main.replaceChildren(changes.element, pairRoot);
    const pair = this.#createPair(pairRoot, loaded, step, open, round);
    this.#shown = { ...loaded, step, changes, pair };
    // what was chosen before comes into view once there is a picture
    let begun = false;
    const watch = (): void => {
      this.#root.dataset.state = pairRoot.dataset.state ?? "loading";
      if (begun || this.#root.dataset.state !== "drawn") return;
      begun = true;
      this.#restore();
    };
    const observer = new MutationObserver(watch);
    observer.observe(pairRoot, { attributes: true, attributeFilter: ["data-state"] });
    onAbort(round, () => observer.disconnect());
    watch();
  }

  #createPair(
    root: HTMLElement,
    { columns, data }: Loaded,
    step: number,
    open: readonly number[] | undefined,
    round: AbortSignal,
  ): GraphPair {
    const host = this.#host;
    const after = (at: number): string => (at === 0 ? "original" : `after ${this.#account.steps[at][0]}`);
    const titles = step === 0 ? (["original", "simplified"] as const) : ([after(step - 1), after(step)] as const);
    return createGraphPair(
      root,
      columns,
      data,
      {
        graphs: [host.graph(0, step), host.graph(1, step)],
        selected: (side, selection) => {
          host.selected?.(side, selection);
          const last = selection.at(-1);
          const change = last === undefined ? -1 : data.changeOf(side, last);
          if (change >= 0 && change !== this.#shown?.changes.chosen) this.#list(change);
        },
        synced: (on) => {
          this.#synced = on;
          host.synced(on);
        },
        picture: host.picture,
        compared: (side, target) => comparedWith(data, columns, titles, side, target),
      },
      {
        height: this.#height,
        synced: this.#synced,
        names: [counted(data.nodes[0][0], "node"), counted(data.nodes[1][0], "node")],
        titles,
        tools: legend(data),
        ...(open !== undefined && { open }),
      },
      round,
    );
  }

  // ---------------------------------------------------------------- changes

  #restore(): void {
    const row = this.#wanted === "" ? -1 : (this.data?.find(this.#wanted) ?? -1);
    if (row >= 0) this.#choose(row);
    else if (this.#undoneAt !== "" && this.#shown !== null) {
      const find = (columns: Columns): Target[] => [columns.find(this.#undoneAt, "tensor") ?? []].flat();
      const [left, right] = this.#shown.columns;
      this.pair?.show([find(left), find(right)]);
    }
    this.#undoneAt = "";
  }

  /** Marks a change in the list and describes it. */
  #list(row: number): void {
    if (this.#shown === null) return;
    const { data, changes } = this.#shown;
    changes.choose(row);
    this.#wanted = row < 0 ? "" : data.key(row);
    this.#host.chosen(this.#wanted);
    if (row >= 0) this.#announce(`${data.rule(row)}: ${data.what(row)}, ${data.why(row)}`);
  }

  #choose(row: number): void {
    this.#list(row);
    this.#showChange(row);
  }

  #showChange(row: number): void {
    const { data } = this;
    if (data !== null) this.pair?.show(row < 0 ? [[], []] : [data.targets(0, row), data.targets(1, row)]);
  }

  #undo(key: string): void {
    this.#simplify(key, [...this.#account.skipped, key], `Undoing ${elide(key, 80)}…`);
  }

  /** Makes a change again, or all that were undone for null. */
  #redo(key: string | null): void {
    const skipped = key === null ? [] : this.#account.skipped.filter((each) => each !== key);
    this.#simplify(key ?? "", skipped, key === null ? "Redoing all changes…" : `Redoing ${elide(key, 80)}…`);
  }

  #simplify(key: string, skipped: readonly string[], text: string): void {
    if (this.#busy || !this.#live) return;
    this.#undoneAt = key.includes(": ") ? key.slice(key.indexOf(": ") + 2) : "";
    this.#announce(text);
    this.#task.run(text, async (round, progress) => {
      this.#announce(await this.#host.again(skipped, progress, round));
      return "";
    });
  }

  #listenKeys(): void {
    on(this.#root, "keydown", { signal: this.#signal, capture: true }, (event) => {
      const from = event.target instanceof HTMLElement ? event.target : null;
      if (from === null || this.#shown === null || event.ctrlKey || event.metaKey || event.altKey) return;
      if (from.matches("input, textarea, select")) return;
      const { changes, data } = this.#shown;
      const key = event.key.toLowerCase();
      const by = ({ n: 1, p: -1 } as const)[key];
      const next = by === undefined ? -1 : changes.neighbor(by);
      if (next >= 0) this.#choose(next);
      else if (key === "u" && changes.chosen >= 0) this.#undo(data.key(changes.chosen));
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    // keys that nobody took are not for the notebook
    on(this.#root, "keydown", this.#signal, (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
    });
  }
}

/** Returns how many nodes were removed, folded and made, with the signs that boxes bear. */
function legend({ nodes: [left, right] }: SimplificationData): HTMLElement[] {
  const counts: readonly (readonly [DiffStatus, number])[] = [
    ["removed", left[1]],
    ["folded", left[2]],
    ["new", right[1]],
  ];
  const shown = counts
    .filter(([, count]) => count > 0)
    .map(([status, count]) => {
      const sign = el("i.onnx-nb-sign", { "aria-hidden": true }, SIGNS[status]);
      return el(`span.onnx-nb-tone.onnx-nb-${status}`, sign, `${plain(count)} ${status}`);
    });
  const unchanged = left[0] - left[1] - left[2];
  return [
    el("div.onnx-nb-tones", { role: "group", "aria-label": "Marks" }, ...shown),
    el("span.onnx-nb-dim.onnx-nb-ellipsis", `${plain(unchanged)} unchanged`),
  ];
}

/** Returns what the inspector shows about a target and the other graph. */
function comparedWith(
  data: SimplificationData,
  columns: readonly [Columns, Columns],
  titles: readonly [string, string],
  side: SideOf,
  target: Target,
): [string, string][] {
  const there = other(side);
  const found = data.counterpart(side, target);
  const name = found === null ? "no counterpart" : columns[there].nameOf(found) || "(unnamed)";
  const rows: [string, string][] = [[titles[there], name]];
  const change = data.changeOf(side, target);
  if (change >= 0) rows.push([data.rule(change), data.what(change)], ["why", data.why(change)]);
  return rows;
}

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
