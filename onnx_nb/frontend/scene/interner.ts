/** Shares one value among equal lists of numbers (hash consing). */

type Lists = readonly ArrayLike<number>[];

export class Interner<T> {
  readonly #entries = new Map<number, { readonly lists: Lists; readonly value: T }[]>();
  #size = 0;

  /** Returns the value of equal lists, or makes it and keeps at most `limit`; the lists must not change afterwards. */
  of(lists: Lists, make: () => T, limit = Number.POSITIVE_INFINITY): T {
    const key = hash(lists);
    const bucket = this.#entries.get(key) ?? [];
    const entry = bucket.find((entry) => equalLists(entry.lists, lists));
    if (entry !== undefined) return entry.value;
    const value = make();
    if (this.#size < limit) this.#entries.set(key, [...bucket, { lists, value }]);
    this.#size++;
    return value;
  }

  clear(): void {
    this.#entries.clear();
    this.#size = 0;
  }
}

const number = new Float64Array(1);
const words = new Uint32Array(number.buffer);

/** Computes FNV-1a over the lengths of the lists and the bits of their numbers. */
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

function equalLists(a: Lists, b: Lists): boolean {
  if (a.length !== b.length) return false;
  for (let list = 0; list < a.length; list++) {
    const listA = a[list];
    const listB = b[list];
    if (listA === listB) continue;
    if (listA.length !== listB.length) return false;
    for (let at = 0; at < listA.length; at++) if (listA[at] !== listB[at]) return false;
  }
  return true;
}
