/** Shares one value among equal lists of numbers (hash consing). */

type Lists = readonly ArrayLike<number>[];

export class Interner<T> {
  readonly #known = new Map<number, { readonly lists: Lists; readonly made: T }[]>();
  #size = 0;

  /**
   * Returns the value created for equal lists, or creates it; the lists must not change afterwards.
   *
   * @param most maximum number of values kept
   */
  of(lists: Lists, make: () => T, most = Number.POSITIVE_INFINITY): T {
    const key = hash(lists);
    const same = this.#known.get(key) ?? [];
    const known = same.find((each) => equal(each.lists, lists));
    if (known !== undefined) return known.made;
    const made = make();
    if (this.#size < most) this.#known.set(key, [...same, { lists, made }]);
    this.#size++;
    return made;
  }

  clear(): void {
    this.#known.clear();
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
