// The text so far: what the reader wrote, and each token that the model chose, with the logits it was chosen from.

export class Story {
  // context: tokens that the model can read at once; end: the id before and after each text
  constructor(tokenizer, decoder, { context, end }) {
    Object.assign(this, { tokenizer, decoder, context, end });
    this.begin("");
  }

  // Start anew behind a prompt.
  begin(prompt) {
    this.prompt = prompt;
    this.promptIds = [this.end, ...this.tokenizer.encode(prompt)];
    this.tokens = [];
    this.cut(0);
  }

  // Forget all tokens of the model's from one on.
  cut(index) {
    this.tokens.length = index;
    this.logits = null;
    // where the text that the model still sees begins
    this.start = 0;
    this.slide();
    this.text = this.tokenizer.stream();
    for (const token of this.tokens) this.text(token.id);
  }

  get ids() {
    return [...this.promptIds, ...this.tokens.map((token) => token.id)];
  }

  // tokens that the next step has in its cache or reads
  get length() {
    return this.promptIds.length + this.tokens.length - this.start;
  }

  get ended() {
    return this.tokens.at(-1)?.id === this.end;
  }

  // Where the context is full, the later half of it goes on alone: half, as all of it must be read again.
  slide() {
    if (this.length > this.context) this.start += this.length - Math.floor(this.context / 2);
  }

  // Read what is new. Afterwards `logits` are those of the next token.
  async catchUp() {
    this.logits ??= await this.decoder.logits(this.ids.slice(this.start));
    return this.logits;
  }

  // Append a token, chosen by a function of the logits, and read it.
  async append(choice) {
    const logits = await this.catchUp();
    const id = choice(logits);
    const token = { id, text: this.text(id), logits };
    this.tokens.push(token);
    this.logits = null;
    this.slide();
    await this.catchUp();
    return token;
  }
}
