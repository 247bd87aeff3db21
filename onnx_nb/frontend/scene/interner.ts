/** Shares what was computed from lists of numbers among equal lists (hash consing). */

type Lists = readonly ArrayLike<number>[];

export class Interner<T> {
  readonly #known = new Map<number, { readonly lists: Lists; readonly made: T }[]>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The value stored for equal lists. */
  find(lists: Lists): T | undefined {
    return this.#known.get(hash(lists))?.find((known) => equal(known.lists, lists))?.made;
  }

  /** Stores a value for lists that must not change any more. */
  keep(lists: Lists, made: T): void {
    const key = hash(lists);
    const same = this.#known.get(key);
    if (same === undefined) this.#known.set(key, [{ lists, made }]);
    else same.push({ lists, made });
    this.#size++;
  }

  clear(): void {
    this.#known.clear();
    this.#size = 0;
  }
}

const number = new Float64Array(1);
const words = new Uint32Array(number.buffer);

/** FNV-1a over the lengths of the lists and the bits of their numbers. */
function hash(lists: Lists): number {
  let sum = 0x811c9dc5;
  for (let list = 0; list < lists.length; list++) {
    const numbers = lists[list];
    sum = Math.imul(sum ^ numbers.length, 0x01000193);
    for (let at = 0; at < numbers.length; at++) {
      number[0] = numbers[at];
      sum = Math.imul(Math.imul(sum ^ words[0], 0x01000193) ^ words[1], 0x01000193);
    }
  }
  return sum;
}

function equal(a: Lists, b: Lists): boolean {
  if (a.length !== b.length) return false;
  for (let list = 0; list < a.length; list++) {
    const ours = a[list];
    const theirs = b[list];
    if (ours === theirs) continue;
    if (ours.length !== theirs.length) return false;
    for (let at = 0; at < ours.length; at++) if (ours[at] !== theirs[at]) return false;
  }
  return true;
}
