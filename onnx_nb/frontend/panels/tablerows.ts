/** Which rows of a table are shown, and in which order: filters and sorting over columns, without a DOM. */

import { written } from "../scene/formatting.ts";

/** One column: numbers, or a text for each row. */
export interface RowColumn {
  /** its name in filters (`max>100`) and in the CSV file */
  readonly key: string;
  /** NaN: there is none */
  readonly numbers?: ArrayLike<number>;
  readonly text?: (row: number) => string;
  /** how a number is shown */
  readonly write?: (x: number, row: number) => string;
}

export interface Sorting {
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
const TERM = /(-?)(?:"([^"]*)"?|(\S+))/g;
const NUMERIC = /^([a-z_ ]+)(>=|<=|!=|>|<|=)([-−+]?(?:\d+\.?\d*|\.\d+)(?:e[-−+]?\d+)?|[-−+]?inf)$/i;

export class RowOrder {
  readonly #count: number;
  readonly #columns: readonly RowColumn[];
  /** of each row all that can be searched, in lower case */
  #haystack: (string | undefined)[];

  constructor(count: number, columns: readonly RowColumn[]) {
    this.#count = count;
    this.#columns = columns;
    this.#haystack = new Array<string | undefined>(count);
  }

  /**
   * The rows that are left, in order.
   * @param filter words that must be there (-word: must not), and comparisons of a column with a number: `std>0.1`
   * @param only rows besides that
   */
  rows(filter: string, sorting: Sorting | null, only?: (row: number) => boolean): Uint32Array {
    const tests = this.#tests(filter);
    const found = new Uint32Array(this.#count);
    let count = 0;
    for (let row = 0; row < this.#count; row++) {
      if (only !== undefined && !only(row)) continue;
      let all = true;
      for (let at = 0; at < tests.length && all; at++) all = tests[at](row);
      if (all) found[count++] = row;
    }
    const rows = found.slice(0, count);
    return sorting === null ? rows : sorted(rows, sorting);
  }

  #tests(filter: string): ((row: number) => boolean)[] {
    return [...filter.matchAll(TERM)].map(([, minus, quoted, word]) => {
      const numeric = quoted === undefined ? this.#numeric(word) : null;
      const wanted = (quoted ?? word).toLowerCase();
      const test = numeric ?? ((row: number): boolean => this.#text(row).includes(wanted));
      return minus === "-" ? (row) => !test(row) : test;
    });
  }

  #numeric(word: string): ((row: number) => boolean) | null {
    const parts = NUMERIC.exec(word);
    if (parts === null) return null;
    const column = this.#columns.find(({ key, numbers }) => numbers !== undefined && key === parts[1].toLowerCase());
    if (column?.numbers === undefined) return null;
    const plain = parts[3].replaceAll("−", "-").toLowerCase();
    const number = plain.endsWith("inf") ? (plain.startsWith("-") ? -Infinity : Infinity) : Number(plain);
    const { numbers } = column;
    const compare = COMPARE[parts[2]];
    return (row) => compare(numbers[row], number);
  }

  #text(row: number): string {
    let text = this.#haystack[row];
    if (text === undefined) {
      text = this.#columns
        .flatMap((column) => (column.text === undefined ? [] : [column.text(row)]))
        .join("\n")
        .toLowerCase();
      this.#haystack[row] = text;
    }
    return text;
  }
}

/** By numbers with NaN last either way, by text as a person would; rows that are equal stay as they were. */
function sorted(rows: Uint32Array, { column, descending }: Sorting): Uint32Array {
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
  // each distinct text is placed once: there are few ops, and comparing texts as a person does is slow
  const texts = new Map<string, number>();
  for (const row of rows) texts.set(text(row), 0);
  const collator = new Intl.Collator("en", { numeric: true });
  [...texts.keys()].sort(collator.compare).forEach((each, place) => {
    texts.set(each, place);
  });
  const place = new Map(Array.from(rows, (row) => [row, texts.get(text(row)) as number]));
  return rows.sort((a, b) => sign * ((place.get(a) as number) - (place.get(b) as number)) || a - b);
}

/** Returns the text of a cell. */
export function cellText(column: RowColumn, row: number): string {
  if (column.numbers === undefined) return column.text?.(row) ?? "";
  const x = column.numbers[row];
  return column.write === undefined ? written(x, 4) : column.write(x, row);
}

/** The rows as a CSV file, numbers with all their digits. */
export function csvOf(columns: readonly RowColumn[], rows: ArrayLike<number>): string {
  const lines = [columns.map(({ key }) => field(key)).join(",")];
  for (let at = 0; at < rows.length; at++) {
    const row = rows[at];
    const cells = columns.map(({ numbers, text }) =>
      numbers === undefined ? field(text?.(row) ?? "") : number(numbers[row]),
    );
    lines.push(cells.join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

function number(x: number): string {
  return Number.isNaN(x) ? "" : x === Infinity ? "inf" : x === -Infinity ? "-inf" : String(x);
}

/** Quotes a field; a name that a spreadsheet would take for a formula gets an apostrophe, for names are not trusted. */
function field(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
