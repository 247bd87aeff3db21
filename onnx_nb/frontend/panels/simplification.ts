/**
 * What a simplification did: whether it was verified, every change with its reason, and original and result side by
 * side. A change that is chosen shows in both; it can be undone and done again, and the result saved.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import type { SideOf } from "../protocol/diff.ts";
import { failure, type GraphHost } from "../protocol/host.ts";
import type { Account, SimplificationData } from "../protocol/simplification.ts";
import { type DiffStatus, SIGNS } from "../scene/diffstatus.ts";
import { createPair, type Pair } from "./diff.ts";
import { button, bytes, copyButton, counted, el, elide, fillings, focused, on, plain } from "./dom.ts";
import { createTable, type Table, type TableColumn } from "./table.ts";
import { createTaskBar, type OnProgress } from "./task.ts";

export interface SimplificationHost {
  readonly live: boolean;
  /** why nothing can be changed or saved where it is not live */
  readonly reason?: string;
  /** both graphs and what lies between them; of a step, 0 for the whole */
  load(step: number): Promise<{ readonly columns: readonly [Columns, Columns]; readonly data: SimplificationData }>;
  graph(side: SideOf, step: number): GraphHost;
  /** simplifies once more without what is named; the new result arrives by `show` */
  again(skipped: readonly string[], told: OnProgress, signal: AbortSignal): Promise<string>;
  save(path: string, replace: boolean, signal: AbortSignal): Promise<Saved>;
  chosen(key: string): void;
  stepped(step: number): void;
  synced(synced: boolean): void;
  picture(svg: string): void;
}

export interface Saved {
  readonly path: string;
  /** nothing was written, as there is such a file */
  readonly exists: boolean;
  readonly size?: string;
}

export interface SimplificationOptions {
  /** px of each graph */
  readonly height: number;
  readonly step: number;
  readonly synced: boolean;
  /** key of the chosen change, "" for none */
  readonly chosen: string;
}

/** The handle that tests and tools find at the root element. */
export interface SimplificationView {
  readonly pair: Pair | null;
  readonly data: SimplificationData | null;
  /** Shows another result, at one of its steps. */
  show(account: Account, step: number): void;
  turn(step: number): void;
  choose(key: string): void;
  setSynced(synced: boolean): void;
  setLive(live: boolean): void;
}

const VERDICTS = {
  verified: ["✓ Verified", "onnx-nb-fine"],
  wrong: ["✕ Not the same", "onnx-nb-bad"],
  unchecked: ["! Not verified", "onnx-nb-caution"],
} as const;
const GONE = "The kernel does not answer: it is busy, or this notebook was opened without one.";
const SAVES = "Write the simplified model to a file";
/** px of the list of changes */
const LIST = 232;
/** So many nodes of a change are named. */
const NAMED = 6;
/** So many of what was left out are listed. */
const SKIPPED = 60;

export function createSimplification(
  root: HTMLElement,
  given: Account,
  host: SimplificationHost,
  options: SimplificationOptions,
  signal: AbortSignal,
): SimplificationView {
  root.classList.add("onnx-nb-simplification");
  let account = given;
  let step = options.step;
  let synced = options.synced;
  let live = host.live;
  let pair: Pair | null = null;
  let data: SimplificationData | null = null;
  let columns: readonly [Columns, Columns] | null = null;
  let wanted = options.chosen;
  let chosen = -1;
  let busy = false;
  let table: Table | null = null;
  /** the tensor of what was undone last: it is shown once the new result is there */
  let place = "";

  const voice = el("div.onnx-nb-voice", { "aria-live": "polite" });
  const say = (text: string): void => {
    voice.textContent = elide(text, 300);
  };
  const strip = (role: string, ...parts: (Node | string)[]): HTMLElement => {
    const made = el("div.onnx-nb-strip", { role }, ...parts);
    made.hidden = true;
    return made;
  };

  // ---------------------------------------------------------------- what is said above

  const name = el("b.onnx-nb-name");
  const verdict = el("span");
  const sizes = el("span.onnx-nb-dim.onnx-nb-ellipsis");
  const said = el("div.onnx-nb-strip", { role: "status" });
  const copyCall = copyButton(() => account.call, signal, "Copy Python");
  const opener = button("Save…", () => openSave(saving.hidden !== false), signal, {
    title: SAVES,
    "aria-expanded": "false",
  });
  const skips = el("div.onnx-nb-strip.onnx-nb-skips", { role: "group", "aria-label": "Left out" });
  const steps = el("div.onnx-nb-strip.onnx-nb-steps", { role: "tablist", "aria-label": "Steps" });

  // ---------------------------------------------------------------- saving

  const path = el("input.onnx-nb-field.onnx-nb-path", {
    type: "text",
    "aria-label": "Path of the file",
    spellcheck: "false",
  });
  const saved = el("span.onnx-nb-message-text", { role: "status" });
  const write = button("Save", () => save(false), signal);
  const replace = button("Replace", () => save(true), signal, { title: "Write over the file that is there" });
  const saving = strip("scope", path, write, replace, saved);
  saving.setAttribute("aria-label", "Save the simplified model");
  const openSave = (open: boolean): void => {
    saving.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    replace.hidden = true;
    saved.textContent = "";
    if (!open) return;
    if (path.value === "") path.value = account.path;
    path.focus();
    path.select();
  };
  const save = (over: boolean): void => {
    saved.textContent = "Saving…";
    write.disabled = replace.disabled = true;
    host
      .save(path.value, over, signal)
      .then(
        (reply) => {
          replace.hidden = !reply.exists;
          saved.textContent = reply.exists
            ? `There is a file ${elide(reply.path, 200)} already.`
            : `Saved ${reply.size ?? ""} to ${elide(reply.path, 200)}`;
          if (reply.exists) replace.focus();
        },
        (error: unknown) => {
          const { message, advice } = failure(error);
          saved.textContent = elide(`${message} ${advice}`, 600);
        },
      )
      .finally(() => enable());
  };
  on(path, "keydown", signal, (event) => {
    event.stopPropagation();
    if (event.key === "Enter") save(false);
    else if (event.key === "Escape") {
      openSave(false);
      opener.focus();
    } else replace.hidden = true;
  });

  // ---------------------------------------------------------------- work

  const task = createTaskBar(
    (on) => {
      busy = on;
      enable();
    },
    say,
    signal,
  );
  const again = (skipped: readonly string[], words: string): void => {
    if (busy || !live) return;
    say(words);
    task.run(words, async (round, told) => {
      say(await host.again(skipped, told, round));
      return "";
    });
  };
  const undo = (key: string): void => {
    place = key.includes(": ") ? key.slice(key.indexOf(": ") + 2) : "";
    again([...account.skipped, key], `Undoing ${elide(key, 80)}…`);
  };
  const redo = (key: string | null): void => {
    place = key?.includes(": ") ? key.slice(key.indexOf(": ") + 2) : "";
    const kept = key === null ? [] : account.skipped.filter((each) => each !== key);
    again(kept, key === null ? "Doing all again…" : `Doing ${elide(key, 80)} again…`);
  };
  /** What needs the kernel can be pressed while it answers and does nothing else. */
  const enable = (): void => {
    const off = !live || busy;
    for (const each of root.querySelectorAll<HTMLButtonElement>("[data-kernel]")) {
      each.disabled = off;
      each.title = live ? (each.dataset.kernel ?? "") : (host.reason ?? GONE);
    }
    write.disabled = replace.disabled = off;
    opener.disabled = !live;
    opener.title = live ? SAVES : (host.reason ?? GONE);
    root.setAttribute("aria-busy", String(busy));
  };

  // ---------------------------------------------------------------- filling

  const head = (): void => {
    const [before, after] = account.nodes;
    name.textContent = elide(account.name, 48);
    name.title = account.name;
    const [text, style] = VERDICTS[account.verdict];
    verdict.className = `onnx-nb-verdict ${style}`;
    verdict.textContent = text;
    const [was, is] = account.bytes;
    const weights = was === is ? bytes(was) : `${bytes(was)} → ${bytes(is)}`;
    sizes.textContent = `${plain(before)} → ${counted(after, "node")}, weights ${weights}`;
    said.replaceChildren(el("span.onnx-nb-message-text", elide(account.said, 600)));
    said.classList.toggle("onnx-nb-alert", account.verdict === "wrong");
    const off = account.outputs.filter(([, , outside]) => outside > 0);
    if (off.length > 0) {
      const words = off
        .slice(0, 8)
        .map(([output, most, n, of]) => `${elide(output, 60)}: up to ${most} in ${plain(n)} of ${plain(of)}`);
      said.append(el("span.onnx-nb-dim.onnx-nb-message-text", words.join("; ")));
    }
    const { skipped } = account;
    skips.hidden = skipped.length === 0;
    skips.replaceChildren(
      el("span.onnx-nb-dim", `Left out: ${plain(skipped.length)}`),
      ...skipped.slice(0, SKIPPED).map((key) => {
        const hint = `Do it again: ${key}`.slice(0, 1000);
        const redone = button(`↻ ${elide(key, 60)}`, () => redo(key), signal, {
          class: "onnx-nb-small",
          data: { kernel: hint },
          "aria-label": `Do again ${elide(key, 120)}`,
        });
        return redone;
      }),
    );
    if (skipped.length > 1) {
      skips.append(
        button("Do all again", () => redo(null), signal, { class: "onnx-nb-small", data: { kernel: "Undo nothing" } }),
      );
    }
    tabs();
  };
  const tabs = (): void => {
    const names = ["All", ...account.steps.slice(1).map(([text], at) => `${at + 1}. ${elide(text, 40)}`)];
    steps.hidden = names.length < 2;
    steps.replaceChildren(
      ...names.map((text, at) =>
        button(text, () => turned(at), signal, {
          class: "onnx-nb-small",
          title: at === 0 ? "The result beside the original" : "The model after this step beside the one before it",
          role: "tab",
          "aria-selected": String(at === step),
          tabindex: at === step ? 0 : -1,
        }),
      ),
    );
  };
  const turned = (to: number): void => {
    if (to === step) return;
    const inside = steps.contains(document.activeElement) || [...steps.children].some(focused);
    view.turn(to);
    host.stepped(to);
    if (inside) (steps.children[to] as HTMLElement | undefined)?.focus();
  };
  on(steps, "keydown", signal, (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    turned((step + by + steps.children.length) % steps.children.length);
  });

  const main = el("div.onnx-nb-simplified");
  const filling = fillings(signal);
  const fill = (): void => {
    const round = filling();
    const open = step === shownStep && pair !== null ? [...pair.views[0].state.open] : undefined;
    root.dataset.state = "loading";
    host.load(step).then(
      (loaded) => {
        if (round.aborted) return;
        data = loaded.data;
        columns = loaded.columns;
        shownStep = step;
        chosen = -1;
        table = null;
        const pairRoot = el("div.onnx-nb-inner");
        main.replaceChildren(lists(data, columns, round), pairRoot);
        pair = graphs(pairRoot, data, columns, open, round);
        enable();
        // what was chosen before comes into view once there is one
        let begun = false;
        const begin = (): void => {
          begun = true;
          const found = wanted === "" ? -1 : (data?.find(wanted) ?? -1);
          if (found >= 0) choose(found, false);
          else if (place !== "") showPlace();
          place = "";
        };
        const watch = (): void => {
          root.dataset.state = pairRoot.dataset.state ?? "loading";
          if (!begun && root.dataset.state === "drawn") begin();
        };
        const watcher = new MutationObserver(watch);
        watcher.observe(pairRoot, { attributes: true, attributeFilter: ["data-state"] });
        round.addEventListener("abort", () => watcher.disconnect(), { once: true });
        watch();
      },
      (thrown: unknown) => {
        if (round.aborted) return;
        const { message, advice } = failure(thrown);
        root.dataset.state = "error";
        main.replaceChildren(el("p.onnx-nb-nothing", { role: "alert" }, `${message} ${advice}`));
      },
    );
  };
  let shownStep = -1;

  const graphs = (
    inside: HTMLElement,
    of: SimplificationData,
    both: readonly [Columns, Columns],
    open: readonly number[] | undefined,
    round: AbortSignal,
  ): Pair => {
    const after = (at: number): string => (at === 0 ? "original" : `after ${account.steps[at][0]}`);
    const titles = step === 0 ? (["original", "simplified"] as const) : ([after(step - 1), after(step)] as const);
    const made = createPair(
      inside,
      both,
      of,
      {
        graphs: [host.graph(0, step), host.graph(1, step)],
        selected(side, selection) {
          const last = selection.at(-1);
          const change = last === undefined ? -1 : of.changeOf(side, last);
          if (change >= 0 && change !== chosen) list(change);
        },
        synced(on) {
          synced = on;
          host.synced(on);
        },
        picture: host.picture,
        compared: (side, target) => compared(of, both, titles, side, target),
      },
      {
        height: options.height,
        synced,
        names: [counted(of.nodes[0][0], "node"), counted(of.nodes[1][0], "node")],
        titles,
        legend: legend(of),
        ...(open !== undefined && { open }),
      },
      round,
    );
    inside.classList.add("onnx-nb-inner");
    return made;
  };

  // ---------------------------------------------------------------- lists

  const detail = el("aside.onnx-nb-detail", { "aria-label": "Change", tabindex: 0 });
  const rule = el("select.onnx-nb-field.onnx-nb-rule", { "aria-label": "Rule" });
  on(rule, "keydown", signal, (event) => event.stopPropagation());
  on(rule, "change", signal, () => {
    const at = rule.selectedIndex - 1;
    const of = data;
    table?.restrict(at < 0 || of === null ? null : (row) => of.ruleOf(row) === at);
  });
  const lists = (of: SimplificationData, both: readonly [Columns, Columns], round: AbortSignal): HTMLElement => {
    rule.replaceChildren(
      el("option", `All rules (${plain(of.count)})`),
      ...of.rules.map(([text, , count]) => el("option", `${text} (${plain(count)})`)),
    );
    const changes = createTable(
      {
        label: "Changes",
        noun: "change",
        count: of.count,
        columns: changeColumns(of),
        chosen: (row) => choose(row, true),
        activated: (row) => light(row),
      },
      round,
    );
    table = changes;
    const all: readonly (readonly [name: string, count: number, table: Table])[] = [
      ["Changes", of.count, changes],
      ["Operators", account.operators.length, operatorTable(account, round)],
      ["Left as it is", account.left_count, leftTable(account, round)],
    ];
    const turns = all.map(([text, count], at) =>
      button(`${text} (${plain(count)})`, () => turn(at), round, {
        class: "onnx-nb-small",
        "aria-pressed": String(at === 0),
      }),
    );
    const turn = (to: number): void => {
      all.forEach(([, , each], at) => {
        turns[at].setAttribute("aria-pressed", String(at === to));
        each.element.hidden = at !== to;
        each.filter.hidden = at !== to;
      });
      detail.hidden = rule.hidden = to !== 0;
      none.hidden = to !== 0 || of.count > 0;
      body.hidden = !none.hidden;
    };
    details(of, both, -1, round);
    const none = el(
      "p.onnx-nb-nothing",
      account.skipped.length > 0
        ? "Nothing is left to change without what was left out."
        : "Nothing was changed: there is nothing that the rewrites could make simpler.",
    );
    const body = el(
      "div.onnx-nb-split-body",
      { style: { "--nb-height": `${LIST}px` } },
      ...all.map(([, , each]) => each.element),
      detail,
    );
    turn(0);
    return el(
      "section",
      { "aria-label": "What was done" },
      el(
        "div.onnx-nb-bar.onnx-nb-lists",
        el("div.onnx-nb-tools", ...turns),
        rule,
        ...all.map(([, , each]) => each.filter),
      ),
      none,
      body,
    );
  };

  const chosenRound = fillings(signal);
  const details = (
    of: SimplificationData,
    both: readonly [Columns, Columns],
    row: number,
    within: AbortSignal,
  ): void => {
    const round = chosenRound();
    if (within.aborted) return;
    detail.scrollTop = 0;
    if (row < 0) {
      const hint =
        of.count > 0
          ? "Choose a change: both graphs show it. Or click a box with a mark to find its change."
          : "Both graphs are the same.";
      detail.replaceChildren(el("p.onnx-nb-dim", hint));
      return;
    }
    const key = of.key(row);
    const [text, does, count] = of.rules[of.ruleOf(row)];
    const facts = el("dl.onnx-nb-rows");
    const fact = (label: string, value: string): void => {
      const shown = el("span", { title: value.slice(0, 4000) }, elide(value, 300));
      facts.append(el("dt", label), el("dd", shown));
    };
    fact("what", of.what(row));
    fact("why", of.why(row));
    fact("at", of.tensor(row));
    for (const side of [0, 1] as const) {
      const nodes = of
        .targets(side, row)
        .filter(({ kind, id }) => kind === "node" && of.changeOf(side, { kind, id }) >= 0);
      const names = nodes
        .slice(0, NAMED)
        .map((node) => `${both[side].opOf(node.id)} ${both[side].nameOf(node)}`.trim());
      if (nodes.length > NAMED) names.push(`${plain(nodes.length - NAMED)} more`);
      if (names.length > 0) fact(side === 0 ? "before" : "after", names.join(", "));
    }
    const kernel = (hint: string): { class: string; data: { kernel: string } } => ({
      class: "onnx-nb-wide",
      data: { kernel: hint },
    });
    detail.replaceChildren(
      el(
        "div.onnx-nb-dim",
        "change",
        copyButton(() => key, round, "Copy key"),
      ),
      el("h4.onnx-nb-mono", elide(text, 80)),
      el("p", `${does}.`),
      el(
        "div.onnx-nb-acts",
        button("Undo this change", () => undo(key), round, kernel("Simplify once more without it (u)")),
        button(
          `Undo the rule (${plain(count)})`,
          () => undo(text),
          round,
          kernel("Simplify once more without all changes of this rule"),
        ),
      ),
      facts,
    );
    enable();
  };

  // ---------------------------------------------------------------- choosing

  /** Marks a change in the list, and says what it is. */
  const list = (row: number): void => {
    if (data === null || columns === null || table === null) return;
    chosen = row;
    if (row >= 0 && rule.selectedIndex > 0 && rule.selectedIndex - 1 !== data.ruleOf(row)) {
      rule.selectedIndex = 0;
      table.restrict(null);
    }
    table.choose(row);
    details(data, columns, row, signal);
    wanted = row < 0 ? "" : data.key(row);
    host.chosen(wanted);
    if (row >= 0) say(`${data.rule(row)}: ${data.what(row)}, ${data.why(row)}`);
  };
  const choose = (row: number, tell: boolean): void => {
    if (row === chosen) return;
    list(row);
    if (row >= 0) light(row);
    else if (tell) pair?.show([[], []]);
  };
  const light = (row: number): void => {
    if (data !== null) pair?.show([data.targets(0, row), data.targets(1, row)]);
  };
  /** Shows where something was undone. */
  const showPlace = (): void => {
    const at = (side: SideOf): Target[] => {
      const found = columns?.[side].find(place, "tensor");
      return found === undefined ? [] : [found];
    };
    pair?.show([at(0), at(1)]);
  };
  on(root, "keydown", { signal, capture: true }, (event) => {
    const from = event.target instanceof HTMLElement ? event.target : null;
    if (from === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (from.matches("input, textarea, select")) return;
    const key = event.key.toLowerCase();
    const by = { n: 1, p: -1 }[key];
    if (by !== undefined && table !== null && table.rows.length > 0) {
      const { rows } = table;
      const place = rows.indexOf(chosen);
      choose(rows[(place < 0 && by < 0 ? 0 : place) + by] ?? rows[by > 0 ? 0 : rows.length - 1], true);
    } else if (key === "u" && chosen >= 0 && data !== null) {
      undo(data.key(chosen));
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  });
  // what nobody took is not for the notebook
  on(root, "keydown", signal, (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
  });

  root.replaceChildren(
    el("header.onnx-nb-bar", name, verdict, sizes, el("div.onnx-nb-tools", copyCall, opener)),
    said,
    saving,
    task.element,
    skips,
    steps,
    main,
    voice,
  );

  const view: SimplificationView = {
    get pair() {
      return pair;
    },
    get data() {
      return data;
    },
    show(next, at) {
      account = next;
      step = at;
      head();
      fill();
      enable();
    },
    turn(to) {
      if (to === step || to >= Math.max(1, account.steps.length)) return;
      step = to;
      tabs();
      fill();
    },
    choose(key) {
      if (key === wanted || data === null) return;
      wanted = key;
      choose(data.find(key), true);
    },
    setSynced(on) {
      synced = on;
      pair?.setSynced(on);
    },
    setLive(on) {
      live = on;
      for (const each of pair?.views ?? []) each.dispatch({ type: "live", live });
      enable();
    },
  };
  Object.assign(root, { onnxNb: view });
  if (step >= Math.max(1, account.steps.length)) step = 0;
  head();
  fill();
  enable();
  return view;
}

/** In words, with counts, and with the signs that boxes bear. */
function legend({ nodes: [left, right] }: SimplificationData): HTMLElement[] {
  const kept = left[0] - left[1] - left[2];
  const entries: readonly (readonly [DiffStatus, number, string])[] = [
    ["removed", left[1], "removed"],
    ["folded", left[2], "folded"],
    ["new", right[1], "new"],
  ];
  const shown = entries
    .filter(([, count]) => count > 0)
    .map(([status, count, word]) =>
      el(
        "span",
        { class: `onnx-nb-tone onnx-nb-${tone}` },
        el("i.onnx-nb-sign", { "aria-hidden": true }, SIGNS[tone]),
        `${plain(count)} ${word}`,
      ),
    );
  return [
    el("div.onnx-nb-tones", { role: "group", "aria-label": "Marks" }, ...shown),
    el("span.onnx-nb-dim.onnx-nb-ellipsis", `${plain(kept)} as they were`),
  ];
}

function compared(
  data: SimplificationData,
  columns: readonly [Columns, Columns],
  titles: readonly [string, string],
  side: SideOf,
  target: Target,
): [string, string][] {
  const there: SideOf = side === 0 ? 1 : 0;
  const found = data.counterpart(side, target);
  const name = found === null ? "nothing like it" : columns[there].nameOf(found) || "(unnamed)";
  const rows: [string, string][] = [[titles[there], name]];
  const change = data.changeOf(side, target);
  if (change >= 0) rows.push([data.rule(change), data.what(change)], ["why", data.why(change)]);
  return rows;
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
    {
      key: "at",
      title: "At",
      hint: "The tensor that was made there",
      width: [110, 1],
      text: (row) => data.tensor(row),
    },
    { key: "why", title: "Why", width: [110, 1.4], text: (row) => data.why(row) },
  ];
}

function operatorTable({ operators }: Account, signal: AbortSignal): Table {
  const numbers = (of: (row: Account["operators"][number]) => number): Float64Array => Float64Array.from(operators, of);
  const signed = (x: number): string => (x === 0 ? "" : x > 0 ? `+${plain(x)}` : `−${plain(-x)}`);
  return createTable(
    {
      label: "Operators before and after",
      noun: "operator",
      count: operators.length,
      columns: [
        { key: "operator", title: "Operator", width: [150, 2], text: (row) => operators[row][0] },
        { key: "before", title: "Before", width: [70, 1], numbers: numbers(([, before]) => before), write: plain },
        { key: "after", title: "After", width: [70, 1], numbers: numbers(([, , after]) => after), write: plain },
        {
          key: "difference",
          title: "Difference",
          width: [80, 1],
          numbers: numbers(([, before, after]) => after - before),
          write: signed,
        },
      ],
    },
    signal,
  );
}

function leftTable({ left }: Account, signal: AbortSignal): Table {
  return createTable(
    {
      label: "Left as it is",
      noun: "node",
      count: left.length,
      columns: [
        { key: "node", title: "Node", width: [150, 1.4], text: (row) => left[row][0] },
        { key: "op", title: "Op", width: [110, 0.7], text: (row) => left[row][1] },
        {
          key: "bytes",
          title: "Would make",
          width: [80, 0],
          numbers: Float64Array.from(left, ([, , nbytes]) => nbytes || Number.NaN),
          write: (x) => (Number.isNaN(x) ? "" : bytes(x)),
        },
        { key: "why", title: "Why", width: [200, 3], text: (row) => left[row][3] },
      ],
    },
    signal,
  );
}
