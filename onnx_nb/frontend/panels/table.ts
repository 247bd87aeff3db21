/**
 * A table of any number of rows: sorted by a click on a column's head, filtered, walked by the keyboard, and read out as
 * a grid. Only the rows in view are elements.
 */

import { counted, el, elide, on, onAbort, plain } from "./dom.ts";
import { cellText, csvOf, type RowColumn, RowOrder, type Sorting } from "./tablerows.ts";

export interface TableColumn extends RowColumn {
  readonly title: string;
  /** what the column is, in a tooltip */
  readonly hint?: string;
  /** px it takes at least, and its share of what is left */
  readonly width: readonly [least: number, share: number];
  /** shown in place of the text, which is read out */
  readonly draw?: (row: number) => Element | null;
  readonly bad?: (row: number) => boolean;
  /** its texts are names, of which those of one scope differ at their ends: the middle gives way where they are long */
  readonly names?: boolean;
  /** where there is no room for all, columns with the highest number are left out first */
  readonly spare?: number;
}

export interface TableOptions {
  /** accessible name */
  readonly label: string;
  readonly count: number;
  readonly columns: readonly TableColumn[];
  /** what one row is, for counting: "value" */
  readonly noun: string;
  readonly sorting?: { readonly key: string; readonly descending: boolean };
  /** a row was chosen by a person; −1 for none */
  readonly chosen?: (row: number) => void;
  /** Enter or a double click */
  readonly activated?: (row: number) => void;
}

export interface Table {
  /** the filter and how many rows are left */
  readonly filter: HTMLElement;
  readonly element: HTMLElement;
  /** the chosen row, −1 for none */
  readonly row: number;
  /** Chooses a row and brings it into view, without telling `chosen`; a row that the filter hides clears the filter. */
  choose(row: number): void;
  /** shows only rows for which it is true; null for all */
  restrict(only: ((row: number) => boolean) | null): void;
  /** the rows that are shown, in order */
  readonly rows: Uint32Array;
  csv(): string;
}

/** px, as in table.css: of a row, and between columns */
const ROW = 26;
const GAP = 10;
/** rows above and below those in view */
const SPARE = 6;
/** Browsers draw no element that is taller; rows of larger tables lie closer than they are high. */
const TALLEST = 8_000_000;
/** Longer texts are shown by both their ends, of which the last has so many characters. */
const WHOLE = 20;
const TAIL = 11;
let tables = 0;

export function createTable(options: TableOptions, signal: AbortSignal): Table {
  const { columns, count, noun } = options;
  const order = new RowOrder(count, columns);
  const id = `onnx-nb-table-${++tables}`;
  let only: ((row: number) => boolean) | null = null;
  let sorting: Sorting | null = null;
  let rows = order.rows("", null);
  /** row → its place among the rows shown, −1 if it is not */
  let places = new Int32Array(0);
  let chosen = -1;
  /** whether the chosen row was in view when a person last scrolled */
  let kept = true;
  let fitting: readonly TableColumn[] = columns;
  const drawn = new Map<number, HTMLElement>();

  // ---------------------------------------------------------------- elements

  const field = el("input.onnx-nb-field", {
    title: `Words that must be there, -word that must not; numbers as ${firstNumeric(columns)}>0.1`,
    type: "search",
    placeholder: "Filter",
    "aria-label": `Filter the ${noun}s`,
    spellcheck: "false",
  });
  const left = el("span.onnx-nb-dim", { "aria-live": "polite" });
  const filter = el("div.onnx-nb-filter", field, left);
  const heads = columns.map((column, at) => headOf(column, at, () => sortBy(column), signal));
  const head = el("div.onnx-nb-tr.onnx-nb-head", { role: "row", "aria-rowindex": 1 }, ...heads);
  const body = el("div.onnx-nb-tbody", { role: "rowgroup" });
  const empty = el("p.onnx-nb-dim.onnx-nb-nothing");
  const grid = el(
    "div.onnx-nb-table",
    { role: "grid", tabindex: 0, "aria-label": options.label, "aria-colcount": columns.length },
    el("div", { role: "rowgroup" }, head),
    body,
    empty,
  );

  // ---------------------------------------------------------------- drawing

  /** Leaves out what there is no room for. */
  const squeeze = (): void => {
    fitting = fittingOf(columns, grid.clientWidth);
    grid.style.setProperty(
      "--nb-tracks",
      fitting.map(({ width: [least, share] }) => `minmax(${least}px, ${share}fr)`).join(" "),
    );
    grid.style.setProperty("--nb-least", `${leastOf(fitting)}px`);
    columns.forEach((column, at) => {
      heads[at].hidden = !fitting.includes(column);
    });
  };
  /** px between the tops of two rows */
  const pitch = (): number => Math.min(ROW, TALLEST / Math.max(1, rows.length));
  const draw = (): void => {
    const step = pitch();
    // the height of the head is that of a row
    const high = Math.max(1, Math.ceil((grid.clientHeight || 400) / ROW));
    const top = Math.floor(grid.scrollTop / step);
    const [from, to] = [Math.max(0, top - SPARE), Math.min(rows.length, top + high + SPARE)];
    const wanted = new Set<number>();
    for (let place = from; place < to; place++) wanted.add(rows[place]);
    for (const [row, element] of drawn) {
      if (wanted.has(row)) continue;
      element.remove();
      drawn.delete(row);
    }
    for (let place = from; place < to; place++) {
      const row = rows[place];
      let element = drawn.get(row);
      if (element === undefined) {
        element = rowOf(row);
        drawn.set(row, element);
        body.append(element);
      }
      // with closer rows the one on top stands where the scrollbar is, the others follow at their height
      const y = step === ROW ? place * ROW : grid.scrollTop + (place - grid.scrollTop / step) * ROW;
      element.style.transform = `translateY(${y}px)`;
      element.setAttribute("aria-rowindex", String(place + 2));
      element.setAttribute("aria-selected", String(row === chosen));
      element.id = `${id}-${row}`;
    }
    if (drawn.has(chosen)) grid.setAttribute("aria-activedescendant", `${id}-${chosen}`);
    else grid.removeAttribute("aria-activedescendant");
  };
  const rowOf = (row: number): HTMLElement =>
    el(
      "div.onnx-nb-tr",
      { role: "row", data: { row: String(row) } },
      ...columns.map((column, at) => (fitting.includes(column) ? cellOf(column, row, at) : null)),
    );
  const clear = (): void => {
    for (const element of drawn.values()) element.remove();
    drawn.clear();
  };

  let due = 0;
  const soon = (): void => {
    if (due === 0) {
      due = requestAnimationFrame(() => {
        due = 0;
        draw();
      });
    }
  };

  const arrange = (): void => {
    rows = order.rows(field.value, sorting, only ?? undefined);
    places = new Int32Array(count).fill(-1);
    rows.forEach((row, place) => {
      places[row] = place;
    });
    body.style.height = `${Math.min(TALLEST, rows.length * ROW)}px`;
    grid.setAttribute("aria-rowcount", String(rows.length + 1));
    left.textContent =
      rows.length === count ? counted(count, noun) : `${plain(rows.length)} of ${counted(count, noun)}`;
    empty.hidden = rows.length > 0;
    empty.textContent = count === 0 ? `There are no ${noun}s.` : `No ${noun} fits the filter.`;
    columns.forEach((column, at) => {
      const sort = sorting?.column !== column ? "none" : sorting.descending ? "descending" : "ascending";
      heads[at].setAttribute("aria-sort", sort);
    });
    // rows are in another order of elements than on the screen otherwise
    clear();
    draw();
  };
  const sortBy = (column: TableColumn): void => {
    const first = column.numbers !== undefined; // the largest number is looked for, the first name
    if (sorting?.column !== column) sorting = { column, descending: first };
    else if (sorting.descending === first) sorting = { column, descending: !first };
    else sorting = null;
    arrange();
    if (chosen >= 0) bring(chosen);
    else grid.scrollTop = 0;
  };

  // ---------------------------------------------------------------- choosing

  /** px of rows in view, and how far below the top of them a row is */
  const where = (row: number): readonly [room: number, y: number] => {
    const step = pitch();
    return [((grid.clientHeight || 400) - 2 * ROW) * (step / ROW), places[row] * step - grid.scrollTop];
  };
  /** Brings a row into view: as far as it takes, or to the middle if it was out of view. */
  const bring = (row: number, middle = false): void => {
    if (row < 0 || places[row] < 0) return;
    const [room, y] = where(row);
    if (y < 0 || y > room) grid.scrollTop += middle ? y - room / 2 : y < 0 ? y : y - room;
    kept = true;
    draw();
  };
  const choose = (row: number, tell: boolean): void => {
    if (row === chosen) return;
    chosen = row;
    draw();
    bring(row, !tell);
    if (tell) options.chosen?.(row);
  };
  const step = (by: number): void => {
    if (rows.length === 0) return;
    const place = chosen < 0 || places[chosen] < 0 ? (by > 0 ? -1 : rows.length) : places[chosen];
    choose(rows[Math.max(0, Math.min(rows.length - 1, place + by))], true);
  };

  const page = (): number => Math.max(1, Math.floor((grid.clientHeight || 400) / ROW) - 2);
  const keys: Readonly<Record<string, () => void>> = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    PageDown: () => step(page()),
    PageUp: () => step(-page()),
    Home: () => step(-count),
    End: () => step(count),
    Enter: () => chosen >= 0 && options.activated?.(chosen),
    Escape: () => choose(-1, true),
    "/": () => field.focus(),
  };
  on(grid, "keydown", signal, (event) => {
    // nothing typed here is a command to the notebook
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
    const act = event.target === grid ? keys[event.key] : undefined;
    if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  on(field, "keydown", signal, (event) => {
    event.stopPropagation();
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      grid.focus();
      if (chosen < 0 || places[chosen] < 0) step(1);
    } else if (event.key === "Escape" && field.value !== "") {
      event.preventDefault();
      field.value = "";
      arrange();
    }
  });
  on(field, "input", signal, arrange);
  const rowAt = (event: Event): number => {
    const element = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-row]") : null;
    return element === null ? -1 : Number(element.dataset.row);
  };
  on(body, "click", signal, (event) => rowAt(event) >= 0 && choose(rowAt(event), true));
  on(body, "dblclick", signal, (event) => rowAt(event) >= 0 && options.activated?.(rowAt(event)));
  on(grid, "scroll", signal, () => {
    if (chosen >= 0 && places[chosen] >= 0) {
      const [room, y] = where(chosen);
      kept = y > -ROW && y < room + ROW;
    }
    soon();
  });
  const observer = new ResizeObserver(() => {
    const before = fitting;
    squeeze();
    if (before.length !== fitting.length) clear();
    if (kept) bring(chosen, true);
    soon();
  });
  observer.observe(grid);
  onAbort(signal, () => {
    observer.disconnect();
    cancelAnimationFrame(due);
  });

  const given = columns.find(({ key }) => key === options.sorting?.key);
  if (given !== undefined) sorting = { column: given, descending: options.sorting?.descending === true };
  squeeze();
  arrange();
  return {
    filter,
    element: grid,
    get row() {
      return chosen;
    },
    get rows() {
      return rows;
    },
    choose(row) {
      if (row >= 0 && places[row] < 0) {
        field.value = "";
        only = null;
        arrange();
      }
      choose(row, false);
      bring(row, true);
    },
    restrict(wanted) {
      only = wanted;
      arrange();
    },
    // what is only drawn is said by the columns beside it
    csv: () =>
      csvOf(
        columns.filter(({ numbers, text }) => numbers !== undefined || text !== undefined),
        rows,
      ),
  };
}

function headOf(column: TableColumn, at: number, sort: () => void, signal: AbortSignal): HTMLElement {
  const element = el("div", {
    class: `onnx-nb-th${column.numbers === undefined ? "" : " onnx-nb-number"}`,
    role: "columnheader",
    "aria-sort": "none",
    "aria-colindex": at + 1,
  });
  if (column.numbers === undefined && column.text === undefined) {
    element.append(column.title);
    return element;
  }
  const press = el("button", { title: column.hint ?? `Sort by ${column.title}` }, column.title);
  press.type = "button";
  on(press, "click", signal, sort);
  element.append(press);
  return element;
}

function leastOf(columns: readonly TableColumn[]): number {
  return columns.reduce((sum, { width: [least] }) => sum + least + GAP, 24 - GAP);
}

function fittingOf(columns: readonly TableColumn[], room: number): readonly TableColumn[] {
  let fitting = columns;
  while (room > 0 && leastOf(fitting) > room) {
    const most = Math.max(...fitting.map(({ spare }) => spare ?? 0));
    if (most === 0) break;
    fitting = fitting.filter(({ spare }) => spare !== most);
  }
  return fitting;
}

function cellOf(column: TableColumn, row: number, at: number): HTMLElement {
  const numeric = column.numbers !== undefined;
  const bad = column.bad?.(row) === true;
  const element = el("div", {
    class: `onnx-nb-td${numeric ? " onnx-nb-number" : ""}${bad ? " onnx-nb-bad" : ""}`,
    role: "gridcell",
    "aria-colindex": at + 1,
  });
  const made = column.draw?.(row) ?? null;
  if (made !== null) element.append(made);
  else {
    const text = cellText(column, row);
    const parts = column.names === true ? bothEnds(elide(text, 120)) : [elide(text, 120)];
    element.append(...parts);
    if (parts.length > 1) element.setAttribute("aria-label", elide(text, 300));
    if (!numeric) element.title = text.slice(0, 4000);
  }
  return element;
}

/** What is too long for a cell gives way in the middle. */
function bothEnds(text: string): readonly (Node | string)[] {
  const characters = Array.from(text);
  if (characters.length <= WHOLE) return [text];
  const at = characters.length - TAIL;
  return [
    el("span.onnx-nb-ellipsis", characters.slice(0, at).join("")),
    el("span.onnx-nb-tail", characters.slice(at).join("")),
  ];
}

function firstNumeric(columns: readonly TableColumn[]): string {
  return columns.find(({ numbers }) => numbers !== undefined)?.key ?? "size";
}
