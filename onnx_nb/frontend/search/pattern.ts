/**
 * Patterns over the strings of a model. Wildcards are matched in time linear in the text, by following all tokens that
 * may match next at once. Regular expressions are the browser's own: limited in length, and refused if a repeated group
 * itself repeats or chooses, which can take exponential time.
 */

/** Tests whether a text, or the part of it from `begin` to `end`, matches. */
export type Matcher = (text: string, begin?: number, end?: number) => boolean;

/** Characters of a regular expression. */
const MAX_REGEX_LENGTH = 200;

/** One character, any number of characters, or leave to skip the next tokens. */
type Token =
  | { readonly one: (code: number) => boolean }
  | { readonly any: (code: number) => boolean }
  | { readonly skip: number };

const TIMES = "×".charCodeAt(0);
const ANY_CHARACTER: Token = { any: () => true };
const CROSS = characterToken("×");

function characterToken(characters: string): Token {
  const codes = Array.from(characters, (character) => character.charCodeAt(0));
  return codes.length === 1 ? { one: (code) => code === codes[0] } : { one: (code) => codes.includes(code) };
}

const literal = (text: string): Token[] => text.split("").map(characterToken);

/** Returns a matcher for whole texts, in which * is any text; the text is in lower case, and A–Z match a–z. */
export function globOf(text: string): Matcher {
  return matcherOf(
    text.split("*").flatMap((part, at) => (at === 0 ? literal(part) : [ANY_CHARACTER, ...literal(part)])),
  );
}

/**
 * Returns a matcher for shapes: * or ? is any dimension, ... or ** any number of them, in any notation: 1x*x768,
 * 1×?×768, [1, 64, 768], 1,64,768. An x may also be part of a dimension's name.
 */
export function shapeOf(text: string): Matcher {
  const bare = text.trim();
  const inner = (/^\[(.*)\]$/.exec(bare)?.[1] ?? /^\(([^()]*)\)$/.exec(bare)?.[1])?.trim() ?? bare;
  if (inner === "") return globOf("scalar");
  const tokens: Token[] = [];
  const piece = /([x×,]\s*)?(?:\*\*|\.\.\.|…)([x×,]\s*)?|\s*,\s*|[*?]|x|\s+|./gsy;
  for (const match of inner.matchAll(piece)) {
    const [token, before, after] = match;
    if (/\*\*|\.\.\.|…/.test(token)) {
      const [begins, ends] = [match.index === 0, match.index + token.length === inner.length];
      if (begins !== ends && ends && before !== undefined) tokens.push({ skip: 3 }, CROSS, ANY_CHARACTER);
      else if (begins !== ends && begins && after !== undefined) tokens.push({ skip: 3 }, ANY_CHARACTER, CROSS);
      else if (!begins && !ends && before !== undefined && after !== undefined) {
        tokens.push(CROSS, { skip: 3 }, ANY_CHARACTER, CROSS);
      } else tokens.push(ANY_CHARACTER);
    } else if (token === "*" || token === "?") {
      const dimension = (code: number): boolean => code !== TIMES;
      tokens.push({ one: dimension }, { any: dimension });
    } else if (token === "x") tokens.push(characterToken("x×"));
    else if (token.includes(",")) tokens.push(characterToken("×,"), { skip: 2 }, characterToken(" "));
    else if (token.trim() !== "") tokens.push(...literal(token));
  }
  return matcherOf(tokens);
}

function matcherOf(tokens: readonly Token[]): Matcher {
  const last = tokens.length;
  let now = new Uint8Array(last + 1);
  let next = new Uint8Array(last + 1);
  const reach = (places: Uint8Array, place: number): void => {
    for (let at = place; at <= last && places[at] === 0; at++) {
      places[at] = 1;
      const token = tokens[at];
      if (token === undefined || "one" in token) return;
      if ("skip" in token) reach(places, at + token.skip);
    }
  };
  return (text, begin = 0, end = text.length) => {
    now.fill(0);
    reach(now, 0);
    for (let at = begin; at < end; at++) {
      const code = text.charCodeAt(at);
      const lower = code >= 65 && code <= 90 ? code + 32 : code;
      next.fill(0);
      for (let place = 0; place < last; place++) {
        if (now[place] === 0) continue;
        const token = tokens[place];
        if ("one" in token && token.one(lower)) reach(next, place + 1);
        else if ("any" in token && token.any(lower)) reach(next, place);
      }
      [now, next] = [next, now];
    }
    return now[last] === 1;
  };
}

/** @throws SyntaxError that says why the expression cannot be used */
export function regexOf(source: string, ignoreCase: boolean): Matcher {
  if (source.length > MAX_REGEX_LENGTH) throw new SyntaxError(`it has more than ${MAX_REGEX_LENGTH} characters`);
  if (repeatsRepeats(source)) throw new SyntaxError("a repeated group may not repeat or choose inside");
  const expression = new RegExp(source, ignoreCase ? "i" : "");
  return (text, begin = 0, end = text.length) => expression.test(text.slice(begin, end));
}

/** Returns whether a repeated group holds a repetition or a choice at any depth, as in (a+)+ and (a|aa)*. */
function repeatsRepeats(source: string): boolean {
  let remainder = source.replace(/\\.|\[(?:\\.|[^\]\\])*\]|~/gs, "x");
  for (;;) {
    const group = /\(([^()]*)\)([*+{]?)/.exec(remainder);
    if (group === null) return false;
    const repeats = /[*+{|~]/.test(group[1]);
    if (repeats && group[2] !== "") return true;
    remainder = remainder.replace(group[0], () => (repeats ? "~" : "x") + group[2]);
  }
}
