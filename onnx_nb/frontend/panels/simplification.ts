/**
 * The panel of a simplification: whether it was verified, every change with its reason, and the original and the result
 * side by side. A chosen change is shown in both graphs; it can be undone and redone, and the result saved.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { SideOf } from "../protocol/diff.ts";
import { failureText, type GraphHost, type NamedTarget } from "../protocol/host.ts";
import type { Account, SimplificationData } from "../protocol/simplification.ts";
import type { SaveReply } from "../protocol/wire.ts";
import { bytes, countOf, integer } from "../scene/formatting.ts";
import {
  button,
  choice,
  copyButton,
  createAnnouncer,
  el,
  elide,
  facts,
  fillings,
  hasFocus,
  on,
  onLetters,
  onState,
} from "../ui/dom.ts";
import { createTableTabs, numbers, Table, type TableColumn, texts } from "../ui/table.ts";
import { createTaskBar, KernelButtons, type OnProgress, type TaskBar } from "../ui/task.ts";
import { createGraphPair, type GraphPair } from "./graphpair.ts";
import { fittingHeight } from "./graphview.ts";
import { statusLabels } from "./legend.ts";
import { createSaveBar } from "./savebar.ts";
import { otherSide, SIDES } from "./synchronizer.ts";

export interface SimplificationHost {
  readonly live: boolean;
  /** why nothing can be changed or saved without a kernel */
  readonly reason: string;
  /** loads both graphs and their differences, of a step or, for 0, of the whole simplification */
  load(step: number): Promise<LoadedStep>;
  graph(side: SideOf, step: number): GraphHost;
  /** simplifies again without the skipped rules and changes; the new result arrives through `show` */
  simplifyAgain(skips: readonly string[], progress: OnProgress, signal: AbortSignal): Promise<string>;
  save(path: string, replace: boolean, signal: AbortSignal): Promise<SaveReply>;
  onChoose?(key: string): void;
  /** a person selected something in one of the graphs */
  onSelect?(side: SideOf, selection: readonly NamedTarget[]): void;
  onStep?(step: number): void;
  onSync?(onSync: boolean): void;
}

interface LoadedStep {
  readonly columns: readonly [Columns, Columns];
  readonly data: SimplificationData;
}

/** The step that is shown. */
interface ShownStep extends LoadedStep {
  readonly step: number;
  readonly changes: ReturnType<typeof createChangeList>;
  readonly pair: GraphPair;
}

export interface SimplificationOptions {
  /** pixels of each graph; by default what fits the window */
  readonly height?: number;
  readonly step: number;
  readonly isSynced: boolean;
  /** key of the chosen change, "" for none */
  readonly changeKey: string;
}

/** The panel, also a handle for tests and tools at the root element. */
export class Simplification {
  readonly #root: HTMLElement;
  readonly #host: SimplificationHost;
  readonly #height: string;
  readonly #kernel = new KernelButtons();
  readonly #header: ReturnType<typeof createHeader>;
  readonly #saveBar: ReturnType<typeof createSaveBar>;
  readonly #task: TaskBar;
  readonly #main = el("div.onnx-nb-simplified");
  readonly #announcer = createAnnouncer();
  readonly #filling: () => AbortSignal;
  #account: Account;
  #step: number;
  #isSynced: boolean;
  #live: boolean;
  #busy = false;
  /** the list that is shown: operators, changes, or what was left */
  #tab = 0;
  #shownStep: ShownStep | null = null;
  /** key of the change that is chosen, or will be once loaded */
  #changeKey: string;
  /** the tensor of the last undone change; it is shown once the new result is ready */
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
    this.#height = fittingHeight(options.height, MARGIN, [260, 460]);
    this.#account = account;
    this.#step = options.step < this.#stepCount ? options.step : 0;
    this.#isSynced = options.isSynced;
    this.#changeKey = options.changeKey;
    this.#live = host.live;
    this.#filling = fillings(signal);
    const turn = (step: number): void => {
      if (step === this.#step) return;
      this.turn(step);
      host.onStep?.(step);
    };
    this.#header = createHeader(this.#kernel, (key) => this.#redo(key), turn, signal);
    const save = (path: string, replace: boolean): Promise<SaveReply> => host.save(path, replace, signal);
    this.#saveBar = createSaveBar(() => this.#account.path, save, this.#kernel, signal);
    this.#task = createTaskBar((busy) => this.#enable(busy), this.#announcer.announce, signal);
    const copy = copyButton(() => this.#account.call, signal, "Copy Python");
    const { summary, report, skips, steps } = this.#header;
    root.classList.add("onnx-nb-simplification");
    root.replaceChildren(
      el("header.onnx-nb-bar", ...summary, el("div.onnx-nb-tools", copy, this.#saveBar.opener)),
      ...[report, this.#saveBar.element, this.#task.element, skips, steps, this.#main, this.#announcer.element],
    );
    const step = (by: 1 | -1): void => {
      const next = this.#shownStep?.changes.neighbor(by) ?? -1;
      if (next >= 0) this.#choose(next);
    };
    const undo = (): void => {
      const chosen = this.#shownStep?.changes.chosen() ?? -1;
      if (this.data !== null && chosen >= 0) this.#undo(this.data.key(chosen));
    };
    onLetters(root, { n: () => step(1), p: () => step(-1), u: undo }, signal);
    Object.assign(root, { onnxNb: this });
    this.#update();
  }

  get pair(): GraphPair | null {
    return this.#shownStep?.pair ?? null;
  }

  get data(): SimplificationData | null {
    return this.#shownStep?.data ?? null;
  }

  /** Shows a new result, at one of its steps. */
  readonly show = (account: Account, step: number): void => {
    this.#account = account;
    this.#step = step;
    this.#saveBar.forget(); // what was saved is not this result
    this.#update();
  };

  readonly turn = (step: number): void => {
    if (step === this.#step || step >= this.#stepCount) return;
    this.#step = step;
    this.#update();
  };

  readonly choose = (key: string): void => {
    if (key === this.#changeKey || this.#shownStep === null) return;
    this.#changeKey = key;
    this.#choose(this.#shownStep.data.find(key));
  };

  readonly setSync = (on: boolean): void => {
    this.#isSynced = on;
    this.pair?.setSync(on);
  };

  readonly setLive = (live: boolean): void => {
    this.#live = live;
    for (const view of this.pair?.views ?? []) view.dispatch({ type: "live", live });
    this.#enable();
  };

  get #stepCount(): number {
    return Math.max(1, this.#account.steps.length);
  }

  /** Enables buttons that need the kernel only while it answers and is idle. */
  #enable(busy = this.#busy): void {
    this.#busy = busy;
    const reason = this.#live ? null : this.#host.reason;
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
    const open = this.#shownStep?.step === step ? [...this.#shownStep.pair.views[0].state.open] : undefined;
    this.#root.dataset.state = "loading";
    try {
      const stepData = await this.#host.load(step);
      if (!round.aborted) this.#fill(stepData, step, open, round);
    } catch (error) {
      if (round.aborted) return;
      this.#root.dataset.state = "error";
      this.#main.replaceChildren(el("p.onnx-nb-nothing", { role: "alert" }, failureText(error)));
    }
  }

  #fill(stepData: LoadedStep, step: number, open: readonly number[] | undefined, round: AbortSignal): void {
    const events = {
      onChoose: (row: number): void => this.#choose(row),
      onActivate: (row: number): void => this.#showChange(row),
      undo: (...keys: readonly string[]): void => this.#undo(...keys),
      tab: this.#tab,
      onTab: (tab: number) => (this.#tab = tab),
    };
    const changes = createChangeList(this.#account, stepData, this.#kernel, events, round);
    const pairRoot = el("div.onnx-nb-inner");
    this.#main.replaceChildren(changes.element, pairRoot);
    this.#shownStep = { ...stepData, step, changes, pair: this.#createPair(pairRoot, stepData, step, open, round) };
    // the previous choice comes into view once there is a picture
    let hasBegun = false;
    const watch = (): void => {
      this.#root.dataset.state = pairRoot.dataset.state ?? "loading";
      if (hasBegun || this.#root.dataset.state !== "drawn") return;
      hasBegun = true;
      this.#restore();
    };
    onState([pairRoot], round, watch);
  }

  #createPair(
    root: HTMLElement,
    { columns, data }: LoadedStep,
    step: number,
    open: readonly number[] | undefined,
    round: AbortSignal,
  ): GraphPair {
    const host = this.#host;
    const [[countBefore, removals, folds], [countAfter, additions]] = data.nodes;
    const after = (at: number): string => (at === 0 ? "original" : `after ${this.#account.steps[at][0]}`);
    const titles = step === 0 ? (["original", "simplified"] as const) : ([after(step - 1), after(step)] as const);
    return createGraphPair(
      root,
      columns,
      data,
      {
        graphs: [host.graph(0, step), host.graph(1, step)],
        onSelect: (side, selection) => {
          host.onSelect?.(side, selection);
          const last = selection.at(-1);
          const change = last === undefined ? -1 : data.changeOf(side, last);
          if (change >= 0 && change !== this.#shownStep?.changes.chosen()) this.#list(change);
        },
        onSync: (on) => {
          this.#isSynced = on;
          host.onSync?.(on);
        },
        counterpartFacts(side, target, name) {
          const change = data.changeOf(side, target);
          const rows: [string, string][] = [[titles[otherSide(side)], name]];
          if (change >= 0) rows.push([data.rule(change), data.text("what", change)], ["why", data.text("why", change)]);
          return rows;
        },
      },
      {
        height: this.#height,
        synced: this.#isSynced,
        names: [countOf(countBefore, "node"), countOf(countAfter, "node")],
        titles,
        tools: [
          statusLabels({ removed: removals, folded: folds, new: additions }),
          el("span.onnx-nb-dim.onnx-nb-ellipsis", `${integer(countBefore - removals - folds)} unchanged`),
        ],
        ...(open !== undefined && { open }),
      },
      round,
    );
  }

  // ---------------------------------------------------------------- changes

  #restore(): void {
    const row = this.#changeKey === "" ? -1 : (this.data?.find(this.#changeKey) ?? -1);
    if (row >= 0) this.#choose(row);
    else if (this.#undoneAt !== "" && this.#shownStep !== null) {
      const find = (columns: Columns): Target[] => [columns.find(this.#undoneAt, "tensor") ?? []].flat();
      const [left, right] = this.#shownStep.columns;
      this.pair?.show([find(left), find(right)]);
    }
    this.#undoneAt = "";
  }

  /** Marks a change in the list and describes it. */
  #list(row: number): void {
    if (this.#shownStep === null) return;
    const { data, changes } = this.#shownStep;
    changes.choose(row);
    this.#changeKey = row < 0 ? "" : data.key(row);
    this.#host.onChoose?.(this.#changeKey);
    if (row >= 0) this.#announcer.announce(`${data.rule(row)}: ${data.text("what", row)}, ${data.text("why", row)}`);
  }

  #choose(row: number): void {
    this.#list(row);
    this.#showChange(row);
  }

  #showChange(row: number): void {
    const { data } = this;
    if (data !== null) this.pair?.show(row < 0 ? [[], []] : [data.targets(0, row), data.targets(1, row)]);
  }

  #undo(...keys: readonly string[]): void {
    const text = keys.length === 1 ? elide(keys[0], 80) : countOf(keys.length, "change");
    this.#simplify(keys[0], [...this.#account.skipped, ...keys], `Undoing ${text}…`);
  }

  /** Redoes a change, or for null all that were undone. */
  #redo(key: string | null): void {
    const skips = key === null ? [] : this.#account.skipped.filter((skip) => skip !== key);
    this.#simplify(key ?? "", skips, key === null ? "Redoing all changes…" : `Redoing ${elide(key, 80)}…`);
  }

  #simplify(key: string, skips: readonly string[], text: string): void {
    if (this.#busy || !this.#live) return;
    this.#undoneAt = key.includes(": ") ? key.slice(key.indexOf(": ") + 2) : "";
    this.#announcer.announce(text);
    this.#task.run(text, async (round, progress) => {
      this.#announcer.announce(await this.#host.simplifyAgain(skips, progress, round));
      return "";
    });
  }
}

const VERDICTS = {
  verified: ["✓ Verified", "onnx-nb-fine"],
  wrong: ["✕ Not the same", "onnx-nb-bad"],
  unchecked: ["! Not verified", "onnx-nb-caution"],
} as const;
/** Maximum number of skipped changes that have a button. */
const MAX_SKIP_BUTTONS = 60;
/** Maximum number of differing outputs that are described. */
const OUTPUTS = 8;

/** Creates the part above the graphs: the verdict, the skipped changes (`redo(null)` redoes all), and the steps. */
function createHeader(
  kernel: KernelButtons,
  redo: (key: string | null) => void,
  turn: (step: number) => void,
  signal: AbortSignal,
) {
  const name = el("b.onnx-nb-name");
  const verdict = el("span");
  const sizes = el("span.onnx-nb-dim.onnx-nb-ellipsis");
  const report = el("div.onnx-nb-strip", { role: "status" });
  const skips = el("div.onnx-nb-strip.onnx-nb-skips", { role: "group", "aria-label": "Left out" });
  const steps = el("div.onnx-nb-strip.onnx-nb-steps", { role: "tablist", "aria-label": "Steps" });
  const filling = fillings(signal);
  let shownStep = 0;

  const showSummary = (account: Account): void => {
    const [text, style] = VERDICTS[account.verdict];
    const [before, after] = account.nodes;
    const [was, is] = account.bytes.map(bytes);
    name.textContent = elide(account.name, 48);
    name.title = account.name;
    verdict.className = `onnx-nb-verdict ${style}`;
    verdict.textContent = text;
    const weights = account.bytes[0] === account.bytes[1] ? was : `${was} → ${is}`;
    sizes.textContent = `${integer(before)} → ${countOf(after, "node")}, weights ${weights}`;
    report.replaceChildren(el("span.onnx-nb-message-text", elide(account.said, 600)));
    report.classList.toggle("onnx-nb-alert", account.verdict === "wrong");
    const off = account.outputs
      .filter(([, , outside]) => outside > 0)
      .slice(0, OUTPUTS)
      .map(([output, maxError, n, of]) => `${elide(output, 60)}: up to ${maxError} in ${integer(n)} of ${integer(of)}`);
    if (off.length > 0) report.append(el("span.onnx-nb-dim.onnx-nb-message-text", off.join("; ")));
  };
  const showSkips = ({ skipped }: Account, round: AbortSignal): void => {
    skips.hidden = skipped.length === 0;
    const redoButton = (key: string): HTMLElement =>
      kernel.create(`↻ ${elide(key, 60)}`, () => redo(key), round, {
        class: "onnx-nb-small",
        hint: `Make this change again: ${key}`.slice(0, 1000),
        "aria-label": `Redo ${elide(key, 120)}`,
      });
    skips.replaceChildren(el("span.onnx-nb-dim", `Left out: ${integer(skipped.length)}`));
    skips.append(...skipped.slice(0, MAX_SKIP_BUTTONS).map(redoButton));
    if (skipped.length > 1) {
      const hint = "Make all changes that were undone again";
      skips.append(kernel.create("Redo all", () => redo(null), round, { class: "onnx-nb-small", hint }));
    }
  };
  const showSteps = (account: Account, step: number, round: AbortSignal): void => {
    const names = ["All", ...account.steps.slice(1).map(([text], at) => `${at + 1}. ${elide(text, 40)}`)];
    const inside = steps.contains(document.activeElement) || [...steps.children].some(hasFocus);
    shownStep = step;
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
    turn((shownStep + by + steps.children.length) % steps.children.length);
  });

  return {
    summary: [name, verdict, sizes],
    report,
    skips,
    steps,
    update(account: Account, step: number): void {
      const round = filling();
      showSummary(account);
      showSkips(account, round);
      showSteps(account, step, round);
    },
  };
}

/** Height of the list of changes. */
const HEIGHT = "clamp(150px, 20vh, 232px)";
/** Pixels of a notebook's window that the list and all else around the graphs takes. */
const MARGIN = 580;
/** Place of the tab with the changes; the operators before and after say more at first. */
const CHANGES = 1;
/** Maximum number of nodes of a change that are named. */
const MAX_NAMES = 6;

/** Creates the list of changes with their reasons, the operators before and after, and what was left unchanged. */
function createChangeList(
  account: Account,
  step: LoadedStep,
  kernel: KernelButtons,
  events: {
    /** a person chose a change, −1 for none, or asked to see it again */
    readonly onChoose: (row: number) => void;
    readonly onActivate: (row: number) => void;
    /** undoes some changes or all changes of a rule */
    readonly undo: (...keys: readonly string[]) => void;
    /** the list that was shown last, and another one that a person chose */
    readonly tab: number;
    readonly onTab: (tab: number) => void;
  },
  signal: AbortSignal,
) {
  const { data } = step;
  const detail = el("aside.onnx-nb-detail", { "aria-label": "Change", tabindex: 0 });
  const rules = [["All rules", "", data.count] as const, ...data.rules];
  const counts = rules.map(([text, , count]) => `${text} (${integer(count)})`);
  const restrict = (at: number): void => table.restrict(at === 0 ? null : (row) => data.ruleOf(row) === at - 1);
  const rule = choice("Rule", counts, restrict, signal);
  const { onChoose, onActivate } = events;
  const places = Array.from({ length: data.count }, (_, row) => placeOf(step, row));
  const kinds = kindsOf(step, places);
  const about = { label: "Changes", noun: "change", count: data.count, kinds, columns: changeColumns(data, places) };
  const table = new Table({ ...about, onChoose, onActivate }, signal);
  const round = fillings(signal);
  const describe = (row: number): void => {
    detail.scrollTop = 0;
    const sameKind = row < 0 ? [] : Array.from(kinds.keys()).filter((candidate) => kinds[candidate] === kinds[row]);
    detail.replaceChildren(...detailOf(row, sameKind, step, kernel, events.undo, round()));
  };
  const emptyText =
    account.skipped.length > 0
      ? "There is nothing left to change besides what was left out."
      : "Nothing was changed: no rule could make the model simpler.";
  const emptyNote = el("p.onnx-nb-nothing", emptyText);
  const tabs = createTableTabs(
    [
      ["Operators", account.operators.length, operatorTable(account, signal)],
      ["Changes", data.count, table],
      ["Left as it is", account.left_count, leftTable(account, signal)],
    ],
    signal,
    (tab) => {
      events.onTab(tab);
      detail.hidden = rule.hidden = tab !== CHANGES;
      emptyNote.hidden = tab !== CHANGES || data.count > 0;
      body.hidden = !emptyNote.hidden;
    },
  );
  const body = el("div.onnx-nb-split-body", { style: { "--nb-height": HEIGHT } }, ...tabs.tables, detail);
  tabs.show(data.count > 0 ? events.tab : CHANGES);
  describe(-1);
  const bar = el("div.onnx-nb-bar.onnx-nb-lists", el("div.onnx-nb-tools", ...tabs.buttons), rule, ...tabs.filters);
  return {
    element: el("section", { "aria-label": "Changes and operators" }, bar, emptyNote, body),
    /** the chosen change, −1 for none */
    chosen: () => table.row,
    /** Marks a change and describes it, without calling `chosen`. */
    choose(row: number): void {
      if (row >= 0) tabs.show(CHANGES);
      if (row >= 0 && rule.selectedIndex > 0 && rule.selectedIndex - 1 !== data.ruleOf(row)) {
        rule.selectedIndex = 0;
        table.restrict(null);
      }
      table.choose(row);
      describe(row);
    },
    /** Returns the next or previous change, −1 if there is none. */
    neighbor(by: 1 | -1): number {
      const { rows } = table;
      const place = rows.indexOf(table.row);
      return rows[(place < 0 && by < 0 ? 0 : place) + by] ?? rows[by > 0 ? 0 : rows.length - 1] ?? -1;
    },
  };
}

/** Returns what the pane shows about a change; `sameKind` are all changes of its kind. */
function detailOf(
  row: number,
  sameKind: readonly number[],
  { data, columns }: LoadedStep,
  kernel: KernelButtons,
  undo: (...keys: readonly string[]) => void,
  signal: AbortSignal,
): HTMLElement[] {
  if (row < 0) {
    const hint = "Choose a change to see it in both graphs, or click a box with a mark to find its change.";
    return [el("p.onnx-nb-dim", data.count > 0 ? hint : "Both graphs are the same.")];
  }
  const key = data.key(row);
  const copyKey = copyButton(() => key, signal, "Copy key");
  const [rule, does, count] = data.rules[data.ruleOf(row)];
  const fact = (text: string): HTMLElement => el("span", { title: text.slice(0, 4000) }, elide(text, 300));
  const rows: [string, HTMLElement][] = [
    ["what", fact(data.text("what", row))],
    ["why", fact(data.text("why", row))],
    ["at", fact(data.tensor(row))],
  ];
  for (const side of SIDES) {
    const nodes = data.targets(side, row).filter((target) => data.changeOf(side, target) >= 0);
    const names = nodes
      .slice(0, MAX_NAMES)
      .map((node) => `${columns[side].opOf(node.id)} ${columns[side].nameOf(node)}`.trim());
    if (nodes.length > MAX_NAMES) names.push(`${integer(nodes.length - MAX_NAMES)} more`);
    if (names.length > 0) rows.push([side === 0 ? "before" : "after", fact(names.join(", "))]);
  }
  const act = (text: string, hint: string, ...undoKeys: readonly string[]): HTMLElement =>
    kernel.create(text, () => undo(...undoKeys), signal, { class: "onnx-nb-wide", hint });
  const keys = sameKind.map((row) => data.key(row));
  return [
    el("div.onnx-nb-dim", "change", copyKey),
    el("h4.onnx-nb-mono", elide(rule, 80)),
    el("p", `${does}.`),
    el(
      "div.onnx-nb-acts",
      act("Undo this change", "Simplify again without this change (u)", key),
      sameKind.length > 1 && sameKind.length < count
        ? act(`Undo all of this kind (${integer(sameKind.length)})`, "Simplify again without any of them", ...keys)
        : null,
      act(`Undo the rule (${integer(count)})`, "Simplify again without any change of this rule", rule),
    ),
    facts(rows),
  ];
}

function changeColumns(data: SimplificationData, places: readonly string[]): readonly TableColumn[] {
  return [
    texts("times", "Times", [62, 0], () => "", { hint: "Changes of one rule that do the same in places of one name" }),
    texts("rule", "Rule", [130, 1], (row) => data.rule(row)),
    texts("what", "What", [140, 1.4], (row) => data.text("what", row)),
    texts("where", "Where", [140, 1.2], (row) => places[row], { hint: "Its scope; * is any number", names: true }),
    texts("at", "At", [170, 1.2], (row) => data.tensor(row), { hint: "The tensor made there", names: true, spare: 1 }),
    texts("why", "Why", [150, 1.4], (row) => data.text("why", row), { spare: 2 }),
  ];
}

/** Returns the scope in which a change was made, with * for its numbers. */
function placeOf({ data, columns }: LoadedStep, row: number): string {
  for (const side of SIDES) {
    const [target] = data.targets(side, row);
    if (target === undefined) continue;
    const graph = columns[side];
    const node = target.kind === "node" ? target.id : graph.producer[target.id];
    return node < 0 ? "" : graph.str(graph.scopePath[graph.scopeOf({ kind: "node", id: node })]).replace(/\d+/g, "*");
  }
  return "";
}

/**
 * Numbers the kinds of changes, rule by rule, those first that remove the most nodes. A kind is one rule that does the
 * same in places of one name.
 */
function kindsOf({ data, columns }: LoadedStep, places: readonly string[]): Int32Array {
  const nodesIn = (side: 0 | 1, row: number): number =>
    data.targets(side, row).filter(({ kind, id }) => kind === "node" && !columns[side].isFolded(id)).length;
  const removals = Array.from({ length: data.count }, (_, row) => nodesIn(0, row) - nodesIn(1, row));
  const byRule = new Float64Array(data.rules.length);
  for (const [row, count] of removals.entries()) byRule[data.ruleOf(row)] += count;
  const kindsByKey = new Map<string, { readonly rule: number; readonly rows: number[] }>();
  for (let row = 0; row < data.count; row++) {
    const [rule, key] = [data.ruleOf(row), `${data.ruleOf(row)}\n${data.text("what", row)}\n${places[row]}`];
    const kind = kindsByKey.get(key) ?? { rule, rows: [] };
    kind.rows.push(row);
    kindsByKey.set(key, kind);
  }
  const kinds = new Int32Array(data.count);
  const inOrder = [...kindsByKey.values()].sort(
    (a, b) =>
      byRule[b.rule] - byRule[a.rule] ||
      a.rule - b.rule ||
      b.rows.length * removals[b.rows[0]] - a.rows.length * removals[a.rows[0]] ||
      a.rows[0] - b.rows[0],
  );
  for (const [kind, { rows }] of inOrder.entries()) for (const row of rows) kinds[row] = kind;
  return kinds;
}

function operatorTable({ operators }: Account, signal: AbortSignal): Table {
  const before = Float64Array.from(operators, ([, count]) => count);
  const after = Float64Array.from(operators, ([, , count]) => count);
  const changes = after.map((count, row) => count - before[row]);
  const difference = (x: number): string => (x === 0 ? "" : x > 0 ? `+${integer(x)}` : `−${integer(-x)}`);
  const columns = [
    texts("operator", "Operator", [150, 2], (row) => operators[row][0]),
    numbers("before", "Before", [70, 1], before, integer),
    numbers("after", "After", [70, 1], after, integer),
    numbers("difference", "Difference", [80, 1], changes, difference),
  ];
  const label = "Operators before and after";
  return new Table({ label, noun: "operator", count: operators.length, columns }, signal);
}

function leftTable({ left }: Account, signal: AbortSignal): Table {
  const sizes = Float64Array.from(left, ([, , nbytes]) => nbytes || Number.NaN);
  const hint = "Bytes that its outputs would take as constants";
  const columns = [
    texts("node", "Node", [150, 1.4], (row) => left[row][0]),
    texts("op", "Op", [110, 0.7], (row) => left[row][1]),
    numbers("bytes", "Size", [80, 0], sizes, (x) => (Number.isNaN(x) ? "" : bytes(x)), { hint }),
    texts("why", "Why", [200, 3], (row) => left[row][3]),
  ];
  return new Table({ label: "Left as it is", noun: "node", count: left.length, columns }, signal);
}
