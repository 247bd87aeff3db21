/**
 * A table of any number of rows: sorted by a click on a column's head, filtered, used by keyboard, and announced as
 * a grid. Only the rows in view are elements.
 */

import { append } from "../protocol/columns.ts";
import { countOf, formatNumber, integer } from "../scene/formatting.ts";
import { button, el, elide, on, onAbort, onKeys, onResize } from "./dom.ts";

export interface TableColumn extends RowColumn {
  readonly title: string;
  /** description of the column, for a tooltip */
  readonly hint?: string;
  /** minimum width in pixels, and share of the remaining width */
  readonly width: readonly [least: number, share: number];
  /** shown in place of the text, which is announced */
  readonly draw?: (row: number) => Element | null;
  readonly isBad?: (row: number) => boolean;
  /** its texts are names, which mostly differ at their ends: the middle of long ones is omitted */
  readonly names?: boolean;
  /** where space is short, columns with the highest number are omitted first */
  readonly spare?: number;
}

/** Returns a column of texts. */
export function texts(
  key: string,
  title: string,
  width: TableColumn["width"],
  text: (row: number) => string,
  options: Partial<TableColumn> = {},
): TableColumn {
  return { key, title, width, text, ...options };
}

/** Returns a column of numbers, NaN for none, with four digits by default. */
export function numbers(
  key: string,
  title: string,
  width: TableColumn["width"],
  of: ArrayLike<number>,
  write?: RowColumn["write"],
  options: Partial<TableColumn> = {},
): TableColumn {
  return { key, title, width, numbers: of, ...(write && { write }), ...options };
}

export interface TableOptions {
  /** accessible name */
  readonly label: string;
  readonly count: number;
  readonly columns: readonly TableColumn[];
  /** numbers that are not shown, for filters */
  readonly hidden?: readonly RowColumn[];
  /** name of a row, for counting: "value" */
  readonly noun: string;
  readonly sorting?: { readonly key: string; readonly descending: boolean };
  /**
   * row → number of its kind, in the order in which kinds are listed. Rows of a kind are one row, with a button that
   * shows all of them, unless the table is sorted or filtered.
   */
  readonly kinds?: ArrayLike<number>;
  /** a person chose a row; −1 for none */
  readonly onChoose?: (row: number) => void;
  /** Enter or a double click */
  readonly onActivate?: (row: number) => void;
}

/** Pixels of a row, and between columns, as in table.css. */
const ROW = 26;
const GAP = 10;
/** Rows that have elements above and below the view. */
const SPARE = 6;
/** Pixels of the tallest element that browsers support; the rows of longer tables overlap. */
const TALLEST = 8_000_000;
/** Characters of the longest name that is not shortened, and of the end that a shortened name keeps. */
const MAX_WHOLE_NAME = 20;
const TAIL = 11;
let tables = 0;

export class Table {
  /** the filter and the number of remaining rows */
  readonly filter: HTMLElement;
  readonly element: HTMLElement;
  readonly #options: TableOptions;
  readonly #order: ReturnType<typeof rowOrder>;
  readonly #id = `onnx-nb-table-${++tables}`;
  readonly #field: HTMLInputElement;
  readonly #left = el("span.onnx-nb-dim", { "aria-live": "polite" });
  readonly #heads: readonly HTMLElement[];
  readonly #body = el("div.onnx-nb-tbody", { role: "rowgroup" });
  readonly #empty = el("p.onnx-nb-dim.onnx-nb-nothing");
  readonly #rowElements = new Map<number, HTMLElement>();
  #restriction: ((row: number) => boolean) | null = null;
  #sorting: Sorting | null = null;
  #rows: Uint32Array;
  /** row → its index among the shown rows, −1 for none */
  #places = new Int32Array(0);
  #chosenRow = -1;
  /** the chosen row was in view when a person last scrolled */
  #inView = true;
  #fitting: readonly TableColumn[];
  #frame = 0;
  /** first row of each kind → number of rows; empty while rows are not gathered */
  #kindCounts = new Map<number, number>();
  /** kinds whose rows are all shown */
  readonly #openKinds = new Set<number>();

  constructor(options: TableOptions, signal: AbortSignal) {
    const { columns, count, noun, label, sorting, hidden = [] } = options;
    const numeric = columns.find(({ numbers }) => numbers !== undefined);
    this.#options = options;
    this.#order = rowOrder(count, [...hidden, ...columns]);
    this.#rows = this.#order("", null);
    this.#fitting = columns;
    this.#field = el("input.onnx-nb-field", {
      title: `Words that must occur, -word that must not; numbers as ${hidden.length > 0 ? "sqnr < 20 dB" : `${numeric?.key ?? "size"}>0.1`}`,
      type: "search",
      placeholder: "Filter",
      "aria-label": `Filter the ${noun}s`,
      spellcheck: "false",
    });
    this.filter = el("div.onnx-nb-filter", this.#field, this.#left);
    this.#heads = columns.map((column, at) => headOf(column, at, () => this.#sortBy(column), signal));
    const head = el("div.onnx-nb-tr.onnx-nb-head", { role: "row", "aria-rowindex": 1 }, ...this.#heads);
    this.element = el(
      "div.onnx-nb-table",
      { role: "grid", tabindex: 0, "aria-label": label, "aria-colcount": columns.length },
      el("div", { role: "rowgroup" }, head),
      this.#body,
      this.#empty,
    );
    this.#listenKeys(signal);
    this.#listenPointer(signal);
    const column = columns.find(({ key }) => key === sorting?.key);
    if (column !== undefined) this.#sorting = { column, descending: sorting?.descending === true };
    this.#fitColumns();
    this.#arrange();
  }

  /** the chosen row, −1 for none */
  get row(): number {
    return this.#chosenRow;
  }

  /** the shown rows, in order */
  get rows(): Uint32Array {
    return this.#rows;
  }

  /** Chooses a row and scrolls to it, without calling `onChoose`; clears a filter that hides the row. */
  choose(row: number): void {
    if (row >= 0 && this.#places[row] < 0) {
      this.#field.value = "";
      this.#openKinds.add(this.#options.kinds?.[row] ?? -1);
      this.restrict(null);
    }
    this.#choose(row, false);
    this.#bring(row, true);
  }

  /** Shows only rows for which it is true; all for null. */
  restrict(restriction: ((row: number) => boolean) | null): void {
    this.#restriction = restriction;
    this.#arrange();
  }

  /** Returns the shown rows as a CSV file, without columns that are only drawn. */
  csv(): string {
    const columns = this.#options.columns.filter(({ numbers, text }) => numbers ?? text);
    return csvOf(columns, this.#rows);
  }

  // ---------------------------------------------------------------- drawing

  /** Hides columns for which there is no space. */
  #fitColumns(): void {
    const { columns } = this.#options;
    this.#fitting = fittingOf(columns, this.element.clientWidth);
    const tracks = this.#fitting.map(({ width: [min, share] }) => `minmax(${min}px, ${share}fr)`);
    this.element.style.setProperty("--nb-tracks", tracks.join(" "));
    this.element.style.setProperty("--nb-least", `${leastOf(this.#fitting)}px`);
    for (const [at, column] of columns.entries()) this.#heads[at].hidden = !this.#fitting.includes(column);
  }

  /** pixels between the tops of two rows */
  get #pitch(): number {
    return Math.min(ROW, TALLEST / Math.max(1, this.#rows.length));
  }

  get #height(): number {
    return this.element.clientHeight || 400;
  }

  #draw(): void {
    const grid = this.element;
    const pitch = this.#pitch;
    const top = grid.scrollTop / pitch;
    const from = Math.max(0, Math.floor(top) - SPARE);
    const to = Math.min(this.#rows.length, Math.floor(top) + Math.max(1, Math.ceil(this.#height / ROW)) + SPARE);
    const rowsInView = new Set(this.#rows.subarray(from, to));
    this.#remove((row) => !rowsInView.has(row));
    for (let place = from; place < to; place++) {
      const row = this.#rows[place];
      const element = this.#rowElements.get(row) ?? this.#add(row);
      // where rows overlap, the first one follows the scrollbar and the others keep their height
      const y = pitch === ROW ? place * ROW : grid.scrollTop + (place - top) * ROW;
      element.style.transform = `translateY(${y}px)`;
      element.setAttribute("aria-rowindex", String(place + 2));
      element.setAttribute("aria-selected", String(row === this.#chosenRow));
    }
    if (this.#rowElements.has(this.#chosenRow))
      grid.setAttribute("aria-activedescendant", `${this.#id}-${this.#chosenRow}`);
    else grid.removeAttribute("aria-activedescendant");
  }

  #add(row: number): HTMLElement {
    const cells = this.#options.columns.map((column, at) =>
      this.#fitting.includes(column) ? cellOf(column, row, at) : null,
    );
    const times = this.#kindCounts.get(row) ?? 1;
    const open = this.#openKinds.has(this.#options.kinds?.[row] ?? -1);
    const inner = open && times === 1 ? ".onnx-nb-inner-row" : "";
    const identity = { id: `${this.#id}-${row}`, role: "row", data: { row: String(row) } };
    const element = el(`div.onnx-nb-tr${inner}`, identity, ...cells);
    if (times > 1) {
      const title = open ? "Show one row for all of this kind" : `Show all ${integer(times)} of this kind`;
      const labels = { title, "aria-label": title, "aria-expanded": open };
      const attributes = { type: "button", tabindex: -1, ...labels, data: { kind: String(row) } };
      cells[0]?.replaceChildren(el("button.onnx-nb-times", attributes, `${open ? "–" : "+"} ×${integer(times)}`));
    }
    this.#rowElements.set(row, element);
    this.#body.append(element);
    return element;
  }

  /** Removes the elements of rows for which it is true. */
  #remove(isObsolete: (row: number) => boolean = () => true): void {
    for (const [row, element] of this.#rowElements) {
      if (!isObsolete(row)) continue;
      element.remove();
      this.#rowElements.delete(row);
    }
  }

  #schedule(): void {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #arrange(): void {
    const { count, columns, noun } = this.#options;
    const all = this.#order(this.#field.value, this.#sorting, this.#restriction);
    this.#rows = this.#gather(all);
    this.#places = new Int32Array(count).fill(-1);
    for (let place = 0; place < this.#rows.length; place++) this.#places[this.#rows[place]] = place;
    const shownCount = all.length;
    this.#body.style.height = `${Math.min(TALLEST, this.#rows.length * ROW)}px`;
    this.element.setAttribute("aria-rowcount", String(this.#rows.length + 1));
    const kinds = this.#kindCounts.size;
    const countText = shownCount === count ? countOf(count, noun) : `${integer(shownCount)} of ${countOf(count, noun)}`;
    this.#left.textContent = kinds > 0 && kinds < shownCount ? `${countText} of ${countOf(kinds, "kind")}` : countText;
    this.#empty.hidden = shownCount > 0;
    this.#empty.textContent = count === 0 ? `There are no ${noun}s.` : `No ${noun} fits the filter.`;
    columns.forEach((column, at) => {
      const sort = this.#sorting?.column !== column ? "none" : this.#sorting.descending ? "descending" : "ascending";
      this.#heads[at].setAttribute("aria-sort", sort);
    });
    // elements of rows are in the order on the screen
    this.#remove();
    this.#draw();
  }

  /** Returns the rows by kind, and of each kind the first one or, if it is opened, all. */
  #gather(rows: Uint32Array): Uint32Array {
    const { kinds } = this.#options;
    this.#kindCounts = new Map();
    if (kinds === undefined || this.#field.value !== "" || this.#sorting !== null) return rows;
    const members = new Map<number, number[]>();
    for (const row of rows) append(members, kinds[row], row);
    const kindsInOrder = [...members].sort(([a], [b]) => a - b);
    for (const [, [first, ...moreRows]] of kindsInOrder) this.#kindCounts.set(first, 1 + moreRows.length);
    return Uint32Array.from(kindsInOrder.flatMap(([kind, all]) => (this.#openKinds.has(kind) ? all : all.slice(0, 1))));
  }

  /** Shows all rows of a kind, or only the first; switches between the two by default. */
  #turn(row: number, open?: boolean): void {
    const kind = this.#options.kinds?.[row] ?? -1;
    const before = this.#openKinds.has(kind);
    if (before === (open ?? !before) || (this.#kindCounts.get(row) ?? 1) < 2) return;
    if (before) this.#openKinds.delete(kind);
    else this.#openKinds.add(kind);
    this.#arrange();
  }

  #sortBy(column: TableColumn): void {
    const first = column.numbers !== undefined; // people look for the largest number, but the first name
    const now = this.#sorting;
    if (now?.column !== column) this.#sorting = { column, descending: first };
    else this.#sorting = now.descending === first ? { column, descending: !first } : null;
    this.#arrange();
    if (this.#chosenRow >= 0) this.#bring(this.#chosenRow);
    else this.element.scrollTop = 0;
  }

  // ---------------------------------------------------------------- choosing

  /** Returns pixels of the visible rows, and of a row below the top of them. */
  #whereIs(row: number): readonly [room: number, y: number] {
    const pitch = this.#pitch;
    return [(this.#height - 2 * ROW) * (pitch / ROW), this.#places[row] * pitch - this.element.scrollTop];
  }

  /** Scrolls to a row: as little as possible, or to the middle if it was out of view. */
  #bring(row: number, middle = false): void {
    if (row < 0 || this.#places[row] < 0) return;
    const [room, y] = this.#whereIs(row);
    if (y < 0 || y > room) this.element.scrollTop += middle ? y - room / 2 : y < 0 ? y : y - room;
    this.#inView = true;
    this.#draw();
  }

  #choose(row: number, person: boolean): void {
    if (row === this.#chosenRow) return;
    this.#chosenRow = row;
    this.#draw();
    this.#bring(row, !person);
    if (person) this.#options.onChoose?.(row);
  }

  #step(by: number): void {
    const last = this.#rows.length - 1;
    const place = this.#places[this.#chosenRow] ?? -1;
    const from = place >= 0 ? place : by > 0 ? -1 : last + 1;
    if (last >= 0) this.#choose(this.#rows[Math.max(0, Math.min(last, from + by))], true);
  }

  #listenKeys(signal: AbortSignal): void {
    const [grid, field] = [this.element, this.#field];
    const { count, onActivate } = this.#options;
    const page = (): number => Math.max(1, Math.floor(this.#height / ROW) - 2);
    const keys: Readonly<Record<string, () => void>> = {
      ArrowDown: () => this.#step(1),
      ArrowUp: () => this.#step(-1),
      PageDown: () => this.#step(page()),
      PageUp: () => this.#step(-page()),
      Home: () => this.#step(-count),
      End: () => this.#step(count),
      ArrowRight: () => this.#turn(this.#chosenRow, true),
      ArrowLeft: () => this.#turn(this.#chosenRow, false),
      Enter: () => this.#chosenRow >= 0 && onActivate?.(this.#chosenRow),
      Escape: () => this.#choose(-1, true),
      "/": () => field.focus(),
    };
    onKeys(grid, keys, signal);
    on(field, "keydown", signal, (event) => {
      event.stopPropagation();
      if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        grid.focus();
        if ((this.#places[this.#chosenRow] ?? -1) < 0) this.#step(1);
      } else if (event.key === "Escape" && field.value !== "") {
        event.preventDefault();
        field.value = "";
        this.#arrange();
      }
    });
    on(field, "input", signal, () => this.#arrange());
  }

  #listenPointer(signal: AbortSignal): void {
    const rowAt = (event: Event): number => {
      const element = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-row]") : null;
      return Number(element?.dataset.row ?? -1);
    };
    on(this.#body, "click", signal, (event) => {
      const times = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-kind]") : null;
      if (times !== null) this.#turn(Number(times.dataset.kind));
      else if (rowAt(event) >= 0) this.#choose(rowAt(event), true);
    });
    on(this.#body, "dblclick", signal, (event) => rowAt(event) >= 0 && this.#options.onActivate?.(rowAt(event)));
    on(this.element, "scroll", signal, () => {
      if (this.#chosenRow >= 0 && this.#places[this.#chosenRow] >= 0) {
        const [room, y] = this.#whereIs(this.#chosenRow);
        this.#inView = y > -ROW && y < room + ROW;
      }
      this.#schedule();
    });
    onResize([this.element], signal, () => {
      const before = this.#fitting.length;
      this.#fitColumns();
      if (before !== this.#fitting.length) this.#remove();
      if (this.#inView) this.#bring(this.#chosenRow, true);
      this.#schedule();
    });
    onAbort(signal, () => cancelAnimationFrame(this.#frame));
  }
}

function headOf(column: TableColumn, at: number, sort: () => void, signal: AbortSignal): HTMLElement {
  const element = el("div", {
    class: `onnx-nb-th${column.numbers === undefined ? "" : " onnx-nb-number"}`,
    role: "columnheader",
    "aria-sort": "none",
    "aria-colindex": at + 1,
  });
  const press = el("button", { type: "button", title: column.hint || `Sort by ${column.title}` }, column.title);
  on(press, "click", signal, sort);
  element.append(column.numbers === undefined && column.text === undefined ? column.title : press);
  return element;
}

function leastOf(columns: readonly TableColumn[]): number {
  return columns.reduce((sum, { width: [min] }) => sum + min + GAP, 24 - GAP);
}

function fittingOf(columns: readonly TableColumn[], room: number): readonly TableColumn[] {
  let fitting = columns;
  while (room > 0 && leastOf(fitting) > room) {
    const max = Math.max(...fitting.map(({ spare }) => spare ?? 0));
    if (max === 0) break;
    fitting = fitting.filter(({ spare }) => spare !== max);
  }
  return fitting;
}

function cellOf(column: TableColumn, row: number, at: number): HTMLElement {
  const numeric = column.numbers !== undefined;
  const isBad = column.isBad?.(row) === true;
  const element = el("div", {
    class: `onnx-nb-td${numeric ? " onnx-nb-number" : ""}${isBad ? " onnx-nb-bad" : ""}`,
    role: "gridcell",
    "aria-colindex": at + 1,
  });
  const content = column.draw?.(row) ?? null;
  if (content !== null) element.append(content);
  else {
    const text = cellText(column, row);
    const parts = column.names === true ? bothEnds(elide(text, 120)) : [elide(text, 120)];
    element.append(...parts);
    if (parts.length > 1) element.setAttribute("aria-label", elide(text, 300));
    if (!numeric) element.title = text.slice(0, 4000);
  }
  return element;
}

/** Splits a long name so that CSS can leave out its middle. */
function bothEnds(text: string): readonly (Node | string)[] {
  const characters = Array.from(text);
  if (characters.length <= MAX_WHOLE_NAME) return [text];
  const [start, end] = [characters.slice(0, -TAIL), characters.slice(-TAIL)].map((part) => part.join(""));
  return [el("span.onnx-nb-ellipsis", start), el("span.onnx-nb-tail", end)];
}

/** A column of numbers, or of a text for each row. */
export interface RowColumn {
  /** its name in filters (`max>100`) and in the CSV file */
  readonly key: string;
  /** NaN for none */
  readonly numbers?: ArrayLike<number>;
  readonly text?: (row: number) => string;
  /** formats a number */
  readonly write?: (x: number, row: number) => string;
}

interface Sorting {
  readonly column: RowColumn;
  readonly descending: boolean;
}

const COMPARE: Readonly<Record<string, (x: number, y: number) => boolean>> = {
  ">": (x, y) => x > y,
  ">=": (x, y) => x >= y,
  "<": (x, y) => x < y,
  "<=": (x, y) => x <= y,
  "=": (x, y) => x === y,
  "!=": (x, y) => x !== y,
};
const TERM = /(-?)(?:"([^"]*)"?|(\w+ *(?:[<>!]=|[<>=]) *[-−+]?[\d.i]\S*(?: *(?:dB|%)(?!\S))?|\S+))/gi;
const NUMERIC = /^(\w+) *([<>!]=|[<>=]) *([-−+]?(?:\d+\.?\d*|\.\d+)(?:e[-−+]?\d+)?|[-−+]?inf) *(dB|%)?$/i;

/**
 * Returns a function that finds the remaining rows, in order. Its filter has words that must occur (-word: must not)
 * and comparisons of a column with a number: `std>0.1`, `sqnr < 20 dB`; `restriction` excludes further rows.
 */
export function rowOrder(
  count: number,
  columns: readonly RowColumn[],
): (filter: string, sorting: Sorting | null, restriction?: ((row: number) => boolean) | null) => Uint32Array {
  /** searchable text of each row, in lower case */
  const haystack = new Array<string | undefined>(count);
  const searchText = (row: number): string => {
    haystack[row] ??= columns
      .flatMap((column) => column.text?.(row) ?? [])
      .join("\n")
      .toLowerCase();
    return haystack[row];
  };
  const comparison = (word: string): ((row: number) => boolean) | null => {
    const [, key, operator, digits, unit] = NUMERIC.exec(word) ?? [];
    const numbersOf = columns.find((column) => column.numbers && column.key === key?.toLowerCase())?.numbers;
    if (numbersOf === undefined) return null;
    const numberText = digits.replaceAll("−", "-").toLowerCase();
    const number = Number(numberText.replace("inf", "Infinity")) / (unit === "%" ? 100 : 1);
    return (row) => COMPARE[operator](numbersOf[row], number);
  };
  return (filter, sorting, restriction = null) => {
    const tests = [...filter.matchAll(TERM)].map(([, minus, quotation, word]) => {
      const term = (quotation ?? word).toLowerCase();
      const test = (quotation === undefined && comparison(word)) || ((row: number) => searchText(row).includes(term));
      return minus === "-" ? (row: number) => !test(row) : test;
    });
    if (restriction !== null) tests.unshift(restriction);
    const rows = new Uint32Array(count).map((_, row) => row).filter((row) => tests.every((test) => test(row)));
    return sorting === null ? rows : sortRows(rows, sorting);
  };
}

/** Sorts by numbers, with NaN last in both directions, or by text in natural order; equal rows keep their order. */
function sortRows(rows: Uint32Array, { column, descending }: Sorting): Uint32Array {
  const sign = descending ? -1 : 1;
  const { numbers, text } = column;
  if (numbers !== undefined) {
    return rows.sort((a, b) => {
      const [x, y] = [numbers[a], numbers[b]];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a - b;
      return x === y ? a - b : x < y ? -sign : sign;
    });
  }
  if (text === undefined) return rows;
  // each distinct text is ranked once: there are few ops, and natural comparison of texts is slow
  const { compare } = new Intl.Collator("en", { numeric: true });
  const texts = [...new Set(Array.from(rows, (row) => text(row)))].sort(compare);
  const ranks = new Map(texts.map((text, rank) => [text, rank]));
  const places = new Map(Array.from(rows, (row) => [row, ranks.get(text(row)) as number]));
  return rows.sort((a, b) => sign * ((places.get(a) as number) - (places.get(b) as number)) || a - b);
}

/** Returns the text of a cell. */
function cellText(column: RowColumn, row: number): string {
  if (column.numbers === undefined) return column.text?.(row) ?? "";
  const x = column.numbers[row];
  return column.write === undefined ? formatNumber(x, 4) : column.write(x, row);
}

/** Returns the rows as a CSV file, numbers with all their digits. */
export function csvOf(columns: readonly RowColumn[], rows: ArrayLike<number>): string {
  const head = columns.map(({ key }) => field(key)).join(",");
  const lines = Array.from(rows, (row) =>
    columns.map(({ numbers, text }) => (numbers ? number(numbers[row]) : field(text?.(row) ?? ""))).join(","),
  );
  return `${[head, ...lines].join("\r\n")}\r\n`;
}

function number(x: number): string {
  return Number.isNaN(x) ? "" : x === Infinity ? "inf" : x === -Infinity ? "-inf" : String(x);
}

/** Quotes a field; a name that a spreadsheet would parse as a formula gets an apostrophe, since names are untrusted. */
function field(text: string): string {
  const guardedText = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(guardedText) ? `"${guardedText.replaceAll('"', '""')}"` : guardedText;
}

/** Tables in one place, with a button for each; `onShow` gets the index of the visible one. */
export function createTableTabs(
  tabs: readonly (readonly [name: string, count: number, table: Pick<Table, "element" | "filter">])[],
  signal: AbortSignal,
  onShow: (tab: number) => void = () => undefined,
) {
  const buttons = tabs.map(([name, count], at) =>
    button(`${name} (${integer(count)})`, () => show(at), signal, { class: "onnx-nb-small" }),
  );
  const show = (tab: number): void => {
    tabs.forEach(([, , { element, filter }], at) => {
      buttons[at].setAttribute("aria-pressed", String(at === tab));
      element.hidden = filter.hidden = at !== tab;
    });
    onShow(tab);
  };
  return {
    buttons,
    filters: tabs.map(([, , { filter }]) => filter),
    tables: tabs.map(([, , { element }]) => element),
    show,
  };
}

/** Returns tables below a chart, with their bar above them. */
export function tablesBelow(bar: readonly Node[], tables: readonly Node[]): HTMLElement {
  return el("section.onnx-nb-below", { "aria-label": "Tables" }, el("div.onnx-nb-below-bar", ...bar), ...tables);
}

/** Returns a bar whose length is a share of the largest. */
export function barOf(share: number, max: number, color: string, title?: string): HTMLElement {
  const width = `${Math.max(1, Math.min(100, (100 * share) / (max || 1))).toFixed(1)}%`;
  return el("span.onnx-nb-hbar", { title, "aria-hidden": true }, el("i", { style: { width, background: color } }));
}

export function barColumn(shares: Float64Array, color: (row: number) => string, spare: number): TableColumn {
  const max = shares.reduce((a, b) => Math.max(a, b), 0);
  return { key: "bar", title: "", width: [90, 0.8], draw: (row) => barOf(shares[row], max, color(row)), spare };
}
