// A decoder in onnxruntime-web: it reads tokens and says how likely each token of its vocabulary comes next.

import { env, InferenceSession, Tensor } from "onnxruntime-web/wasm";

const zeros = { float32: Float32Array, float16: Uint16Array };

export class Decoder {
  // wasm: the bytes of the runtime, model: those of the .onnx file
  static async create(wasm, model) {
    env.wasm.wasmBinary = wasm;
    // more of them need a server that isolates the page
    env.wasm.numThreads = 1;
    return new Decoder(await InferenceSession.create(model));
  }

  constructor(session) {
    this.session = session;
    this.inputs = session.inputMetadata;
    // what a step writes as present.0.key, the next one reads as past_key_values.0.key
    this.states = this.inputs.map(({ name }) => name).filter((name) => name.startsWith("past_key_values."));
    this.read = 0;
    this.forget();
  }

  // an empty cache: one row, no position
  forget() {
    this.ids = [];
    this.cache = Object.fromEntries(
      this.inputs
        .filter(({ name }) => this.states.includes(name))
        .map(({ name, type, shape }) => {
          const sizes = shape.map((size, axis) => (typeof size === "number" && size >= 0 ? size : axis === 0 ? 1 : 0));
          const elements = sizes.reduce((product, size) => product * size, 1);
          return [name, new Tensor(type, new zeros[type](elements), sizes)];
        }),
    );
  }

  // Returns the logits of the token after `ids`. Only those are read that are not in the cache yet.
  async logits(ids) {
    const known = this.ids.length < ids.length && this.ids.every((id, i) => id === ids[i]);
    if (!known) this.forget();
    const past = this.ids.length;
    const fresh = ids.slice(past);
    const outputs = await this.session.run(this.feeds(fresh, past));
    for (const name of this.states) this.cache[name] = outputs[name.replace("past_key_values.", "present.")];
    this.ids = [...ids];
    this.read += fresh.length;
    const { data, dims } = outputs.logits;
    return data.slice(-dims.at(-1));
  }

  feeds(fresh, past) {
    const row = (values) => new Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    const others = {
      input_ids: () => row(fresh),
      attention_mask: () => row(Array(past + fresh.length).fill(1)),
      position_ids: () => row(fresh.map((_, i) => past + i)),
    };
    const feeds = { ...this.cache };
    for (const { name } of this.inputs) if (!(name in feeds)) feeds[name] = others[name]();
    return feeds;
  }
}

// Returns the probability of each token. A temperature below 1 sharpens them, one above 1 levels them.
export function probabilities(logits, temperature = 1) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const weights = Float64Array.from(logits, (logit) => Math.exp((logit - most) / temperature));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((weight) => weight / sum);
}

// Returns the ids of the `k` largest values, largest first; of equals the one with the smaller id.
export function largest(values, k) {
  const ids = Array.from(values.keys());
  return ids.sort((a, b) => values[b] - values[a] || a - b).slice(0, k);
}

// Draws an id with the given probabilities; `random` is a number from 0 to 1.
export function draw(chances, random = Math.random()) {
  let rest = random;
  for (const [id, chance] of chances.entries()) {
    rest -= chance;
    if (rest < 0) return id;
  }
  // rounding may leave a little
  return largest(chances, 1)[0];
}
