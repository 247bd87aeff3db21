// Byte-level byte-pair encoding: the text of a tokenizer.json becomes token ids, and ids become text, as in Python's
// tokenizers library.

// GPT-2's words: a contraction, letters, digits or other signs with the space before them, white space. \p{White_Space}
// stands for the library's \s, which differs from that of JavaScript in two characters
const WORD =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

// bytes that print stand for themselves, all others for the characters from 256 on
function alphabet() {
  const printed = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173 && byte < 256);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printed(byte) ? byte : next++));
}

const CHARACTERS = alphabet();
const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

export class Tokenizer {
  // json: the parsed tokenizer.json
  constructor(json) {
    const { model, added_tokens: added = [], normalizer, pre_tokenizer: split, post_processor: after } = json;
    const simple = added.every((token) => !token.lstrip && !token.rstrip && !token.single_word);
    const plain = split?.type === "ByteLevel" && !split.add_prefix_space && split.use_regex !== false;
    // a post-processor of this type only moves offsets
    if (model.type !== "BPE" || normalizer || !plain || !simple || (after && after.type !== "ByteLevel")) {
      throw new Error("This tokenizer.json is not a plain byte-level BPE.");
    }
    this.vocabulary = new Map(Object.entries(model.vocab));
    const pairs = model.merges.map((pair) => (Array.isArray(pair) ? pair.join(" ") : pair));
    this.ranks = new Map(pairs.map((pair, rank) => [pair, rank]));
    this.added = new Map(added.map(({ content, id }) => [content, id]));
    this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
    this.tokens = new Map([...this.vocabulary, ...this.added].map(([token, id]) => [id, token]));
    // the longest of the added tokens wins where one begins with another
    const longest = [...this.added.keys()].sort((a, b) => b.length - a.length);
    const escaped = longest.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.parts = escaped.length ? new RegExp(`(${escaped.join("|")})`) : null;
    this.words = new Map();
  }

  encode(text) {
    const parts = this.parts ? text.split(this.parts) : [text];
    return parts.flatMap((part) => {
      if (this.added.has(part)) return [this.added.get(part)];
      return (part.match(WORD) ?? []).flatMap((word) => this.encodeWord(word));
    });
  }

  encodeWord(word) {
    let ids = this.words.get(word);
    if (!ids) {
      const bytes = [...new TextEncoder().encode(word)];
      ids = this.merged(bytes.map((byte) => CHARACTERS[byte])).map((token) => this.vocabulary.get(token));
      this.words.set(word, ids);
    }
    return ids;
  }

  // the pair that was learned first is merged first, everywhere in the word
  merged(tokens) {
    while (tokens.length > 1) {
      let best = Number.POSITIVE_INFINITY;
      for (let i = 1; i < tokens.length; i++) {
        best = Math.min(best, this.ranks.get(`${tokens[i - 1]} ${tokens[i]}`) ?? best);
      }
      if (best === Number.POSITIVE_INFINITY) break;
      const next = [];
      for (const token of tokens) {
        const pair = `${next.at(-1)} ${token}`;
        if (next.length && this.ranks.get(pair) === best) next.push(next.pop() + token);
        else next.push(token);
      }
      tokens = next;
    }
    return tokens;
  }

  bytes(id) {
    const token = this.tokens.get(id);
    return this.added.has(token) ? new TextEncoder().encode(token) : Uint8Array.from(token, (it) => BYTES.get(it));
  }

  // Returns a function of one id after the other: the text that is complete with it. A character of several bytes may
  // take several tokens.
  stream() {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return (id) => (this.special.has(id) ? "" : decoder.decode(this.bytes(id), { stream: true }));
  }

  decode(ids) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    const spoken = ids.filter((id) => !this.special.has(id));
    return decoder.decode(Uint8Array.from(spoken.flatMap((id) => [...this.bytes(id)])));
  }
}
