/** The changes of a simplification with their reasons, the operators before and after, and what was left as it is. */

import type { Columns } from "../protocol/columns.ts";
import type { Account, SimplificationData } from "../protocol/simplification.ts";
import { bytes, plain } from "../scene/formatting.ts";
import { copyButton, el, elide, fillings, on } from "./dom.ts";
import type { KernelButtons } from "./kernelbuttons.ts";
import { createTableTabs, Table, type TableColumn } from "./table.ts";

export interface ChangeList {
  readonly element: HTMLElement;
  /** the chosen change, −1 for none */
  readonly chosen: number;
  /** Marks a change and describes it, without calling `chosen`. */
  choose(row: number): void;
  /** Returns the next or previous change, −1 if there is none. */
  neighbor(by: 1 | -1): number;
}

export interface ChangeEvents {
  /** a person chose a change, −1 for none */
  chosen(row: number): void;
  /** a person wants to see it again */
  activated(row: number): void;
  /** undoes a change or all of a rule */
  undo(key: string): void;
}

/** Pixels of the list of changes. */
const HEIGHT = 232;
/** Nodes of a change that are named. */
const NAMED = 6;

export function createChangeList(
  account: Account,
  data: SimplificationData,
  columns: readonly [Columns, Columns],
  kernel: KernelButtons,
  events: ChangeEvents,
  signal: AbortSignal,
): ChangeList {
  const detail = el("aside.onnx-nb-detail", { "aria-label": "Change", tabindex: 0 });
  const rule = el("select.onnx-nb-field.onnx-nb-rule", { "aria-label": "Rule" });
  rule.append(el("option", `All rules (${plain(data.count)})`));
  rule.append(...data.rules.map(([text, , count]) => el("option", `${text} (${plain(count)})`)));
  on(rule, "keydown", signal, (event) => event.stopPropagation());
  on(rule, "change", signal, () => {
    const at = rule.selectedIndex - 1;
    table.restrict(at < 0 ? null : (row) => data.ruleOf(row) === at);
  });
  const table = new Table(
    {
      label: "Changes",
      noun: "change",
      count: data.count,
      columns: changeColumns(data),
      chosen: events.chosen,
      activated: events.activated,
    },
    signal,
  );
  const round = fillings(signal);
  const describe = (row: number): void => {
    detail.scrollTop = 0;
    detail.replaceChildren(...detailOf(row, data, columns, kernel, events.undo, round()));
  };
  const nothing = el(
    "p.onnx-nb-nothing",
    account.skipped.length > 0
      ? "There is nothing left to change besides what was left out."
      : "Nothing was changed: no rule could make the model simpler.",
  );
  const tabs = createTableTabs(
    [
      ["Changes", data.count, table],
      ["Operators", account.operators.length, operatorTable(account, signal)],
      ["Left as it is", account.left_count, leftTable(account, signal)],
    ],
    (tab) => {
      detail.hidden = rule.hidden = tab !== 0;
      nothing.hidden = tab !== 0 || data.count > 0;
      body.hidden = !nothing.hidden;
    },
    signal,
  );
  const body = el("div.onnx-nb-split-body", { style: { "--nb-height": `${HEIGHT}px` } }, ...tabs.tables, detail);
  tabs.show(0);
  describe(-1);
  const bar = el("div.onnx-nb-bar.onnx-nb-lists", el("div.onnx-nb-tools", ...tabs.buttons), rule, ...tabs.filters);

  return {
    element: el("section", { "aria-label": "Changes and operators" }, bar, nothing, body),
    get chosen() {
      return table.row;
    },
    choose(row) {
      if (row >= 0 && rule.selectedIndex > 0 && rule.selectedIndex - 1 !== data.ruleOf(row)) {
        rule.selectedIndex = 0;
        table.restrict(null);
      }
      table.choose(row);
      describe(row);
    },
    neighbor(by) {
      const { rows } = table;
      const place = rows.indexOf(table.row);
      return rows[(place < 0 && by < 0 ? 0 : place) + by] ?? rows[by > 0 ? 0 : rows.length - 1] ?? -1;
    },
  };
}

/** Returns what the pane shows about a change. */
function detailOf(
  row: number,
  data: SimplificationData,
  columns: readonly [Columns, Columns],
  kernel: KernelButtons,
  undo: (key: string) => void,
  signal: AbortSignal,
): HTMLElement[] {
  if (row < 0) {
    const hint = "Choose a change to see it in both graphs, or click a box with a mark to find its change.";
    return [el("p.onnx-nb-dim", data.count > 0 ? hint : "Both graphs are the same.")];
  }
  const key = data.key(row);
  const [rule, does, count] = data.rules[data.ruleOf(row)];
  const facts = el("dl.onnx-nb-rows");
  const fact = (label: string, value: string): void =>
    facts.append(el("dt", label), el("dd", el("span", { title: value.slice(0, 4000) }, elide(value, 300))));
  fact("what", data.what(row));
  fact("why", data.why(row));
  fact("at", data.tensor(row));
  for (const side of [0, 1] as const) {
    const nodes = data.targets(side, row).filter((target) => data.changeOf(side, target) >= 0);
    const names = nodes
      .slice(0, NAMED)
      .map((node) => `${columns[side].opOf(node.id)} ${columns[side].nameOf(node)}`.trim());
    if (nodes.length > NAMED) names.push(`${plain(nodes.length - NAMED)} more`);
    if (names.length > 0) fact(side === 0 ? "before" : "after", names.join(", "));
  }
  const act = (text: string, undone: string, hint: string): HTMLElement =>
    kernel.create(text, () => undo(undone), signal, { class: "onnx-nb-wide", hint });
  return [
    el(
      "div.onnx-nb-dim",
      "change",
      copyButton(() => key, signal, "Copy key"),
    ),
    el("h4.onnx-nb-mono", elide(rule, 80)),
    el("p", `${does}.`),
    el(
      "div.onnx-nb-acts",
      act("Undo this change", key, "Simplify again without this change (u)"),
      act(`Undo the rule (${plain(count)})`, rule, "Simplify again without any change of this rule"),
    ),
    facts,
  ];
}

function changeColumns(data: SimplificationData): readonly TableColumn[] {
  return [
    {
      key: "number",
      title: "#",
      hint: "In the order in which they were made",
      width: [16 + 9 * plain(data.count).length, 0],
      numbers: Float64Array.from({ length: data.count }, (_, row) => row + 1),
      write: plain,
    },
    { key: "rule", title: "Rule", width: [150, 1.2], text: (row) => data.rule(row) },
    { key: "what", title: "What", width: [150, 1.6], text: (row) => data.what(row) },
    { key: "at", title: "At", hint: "The tensor made there", width: [110, 1], text: (row) => data.tensor(row) },
    { key: "why", title: "Why", width: [110, 1.4], text: (row) => data.why(row) },
  ];
}

function operatorTable({ operators }: Account, signal: AbortSignal): Table {
  const numbers = (of: (row: Account["operators"][number]) => number): Float64Array => Float64Array.from(operators, of);
  const columns: TableColumn[] = [
    { key: "operator", title: "Operator", width: [150, 2], text: (row) => operators[row][0] },
    { key: "before", title: "Before", width: [70, 1], numbers: numbers(([, before]) => before), write: plain },
    { key: "after", title: "After", width: [70, 1], numbers: numbers(([, , after]) => after), write: plain },
    {
      key: "difference",
      title: "Difference",
      width: [80, 1],
      numbers: numbers(([, before, after]) => after - before),
      write: (x) => (x === 0 ? "" : x > 0 ? `+${plain(x)}` : `−${plain(-x)}`),
    },
  ];
  const label = "Operators before and after";
  return new Table({ label, noun: "operator", count: operators.length, columns }, signal);
}

function leftTable({ left }: Account, signal: AbortSignal): Table {
  const columns: TableColumn[] = [
    { key: "node", title: "Node", width: [150, 1.4], text: (row) => left[row][0] },
    { key: "op", title: "Op", width: [110, 0.7], text: (row) => left[row][1] },
    {
      key: "bytes",
      title: "Size",
      hint: "Bytes that its outputs would take as constants",
      width: [80, 0],
      numbers: Float64Array.from(left, ([, , nbytes]) => nbytes || Number.NaN),
      write: (x) => (Number.isNaN(x) ? "" : bytes(x)),
    },
    { key: "why", title: "Why", width: [200, 3], text: (row) => left[row][3] },
  ];
  return new Table({ label: "Left as it is", noun: "node", count: left.length, columns }, signal);
}
