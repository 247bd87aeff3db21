// The page: buttons, the text with its tokens, and the five likeliest next ones as bars.

import { Decoder, draw, largest, probabilities } from "./decoder.js";
import { Story } from "./story.js";
import { Tokenizer } from "./tokenizer.js";

const SHOWN = 5;
// milliseconds a token where a person wants to watch: about as fast as one reads
const WATCHABLE = 45;
// only the last one is in the dictionary
const WORDS = ["COMPUTER, n.", "ENGINEER, n.", "NOTEBOOK, n.", "TELEVISION, n.", "OPTIMIST, n."];

const at = (id) => document.getElementById(id);
const main = document.querySelector("main");
const made = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

let story;
// which token of the model's the bars are about; at its end: the next one
let looked = null;
// whether it stays so when the pointer goes on
let pinned = false;
let writing = false;
let stopped = false;
const speed = { tokens: 0, seconds: 0 };

// --- what the page carries

async function unpacked(id) {
  const element = at(id);
  const packed = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function open() {
  const facts = JSON.parse(at("facts").textContent);
  const [json, model, wasm] = await Promise.all(["tokenizer.json", "model.onnx", "runtime.wasm"].map(unpacked));
  const tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(json)));
  say("Starting onnxruntime …");
  const decoder = await Decoder.create(wasm, model);
  story = new Story(tokenizer, decoder, facts);
  story.begin(at("prompt").value);
  await story.catchUp();
  return { story, tokenizer, decoder, choice };
}

// --- what a person sees

const say = (text) => {
  at("state").textContent = text;
};

// A token as its row shows it: spaces and line ends are seen, and so are the bytes of what is no character, or no sign.
function name(id) {
  if (id === story.end) return "end of entry";
  const bytes = story.tokenizer.bytes(id);
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  const seen = text.replaceAll(" ", "␣").replaceAll("\n", "↵");
  if (!/[\ufffd\p{C}]/u.test(seen)) return seen;
  return `bytes ${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ")}`;
}

const greedy = () => document.querySelector("[name=mode]:checked").value === "greedy";
const temperature = () => (greedy() ? 1 : Number(at("temperature").value));

function choice(logits) {
  return greedy() ? largest(logits, 1)[0] : draw(probabilities(logits, temperature()));
}

function drawChoices() {
  const token = looked === null ? null : story.tokens[looked];
  const logits = token ? token.logits : story.logits;
  if (!logits) return;
  const chances = probabilities(logits, temperature());
  const ids = largest(chances, SHOWN);
  // a token that was drawn from further down takes the last row: a row more would move what is below
  if (token && !ids.includes(token.id)) ids.splice(-1, 1, token.id);
  at("choices-title").textContent = token ? `Instead of “${name(token.id)}”` : "Next token";
  const rows = ids.map((id) => {
    const percent = 100 * chances[id];
    const number = percent >= 0.1 ? `${percent.toFixed(1)} %` : "< 0.1 %";
    const button = made("button", { disabled: writing, className: token?.id === id ? "chosen" : "" });
    button.dataset.id = id;
    button.style.setProperty("--share", `${percent}%`);
    button.append(made("span", { className: "token" }, name(id)), made("span", { className: "chance" }, number));
    return made("li", {}, button);
  });
  const focused = [...at("choices").querySelectorAll("button")].indexOf(document.activeElement);
  at("choices").replaceChildren(...rows);
  // the row with the keyboard's focus is a new element
  if (focused >= 0) at("choices").querySelectorAll("button")[Math.min(focused, rows.length - 1)].focus();
}

// how much the choice surprised the model, in five grades of ink
function surprise({ id, logits }) {
  const chance = probabilities(logits)[id];
  return chance > 0.5 ? 0 : chance > 0.2 ? 1 : chance > 0.05 ? 2 : chance > 0.01 ? 3 : 4;
}

function drawToken(token) {
  const end = token.id === story.end;
  const element = made("span", { className: end ? "end" : "token", textContent: end ? "\n❧\n" : token.text });
  element.dataset.surprise = surprise(token);
  at("story").append(element);
}

function drawStory() {
  at("story").replaceChildren(made("span", { className: "given" }));
  story.tokens.forEach(drawToken);
  drawState();
}

function drawState() {
  const unread = story.tokenizer.decode(story.promptIds.slice(0, story.start));
  const [given, ...spans] = at("story").children;
  given.replaceChildren(made("span", { className: "unread" }, unread), story.prompt.slice(unread.length));
  spans.forEach((span, i) => {
    span.classList.toggle("unread", story.promptIds.length + i < story.start);
    span.classList.toggle("looked", i === looked);
  });
  const rate = speed.seconds ? ` · ${Math.round(speed.tokens / speed.seconds).toLocaleString("en")} tokens/s` : "";
  const full = story.start ? " · the model no longer reads the gray part" : "";
  at("numbers").textContent =
    `${story.tokens.length} tokens written${rate} · ${story.length} of ${story.context} tokens of context${full}`;
  at("story").classList.toggle("empty", !story.tokens.length);
  for (const id of ["step", "clear"]) at(id).disabled = writing;
  for (const button of document.querySelectorAll(".examples button")) button.disabled = writing;
  at("prompt").readOnly = writing;
  at("write").textContent = writing ? "Stop" : "Write";
  at("temperature").disabled = greedy();
  main.dataset.state = writing ? "writing" : "ready";
  drawChoices();
}

function look(index, pin = false) {
  if (writing) return;
  [looked, pinned] = [index, pin];
  drawState();
}

// --- what a person does

// A message lets the browser draw between two tokens; a timer of 0 ms would wait for 4.
const channel = new MessageChannel();
const pause = (milliseconds) =>
  new Promise((resolve) => {
    if (milliseconds > 0) return setTimeout(resolve, milliseconds);
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });

async function write(limit, pick = choice) {
  if (writing) return;
  [writing, stopped, looked, pinned] = [true, false, null, false];
  Object.assign(speed, { tokens: 0, seconds: 0 });
  const first = story.tokens.length;
  drawState();
  say("Writing …");
  try {
    let ended = false;
    for (let i = 0; i < limit && !stopped && !ended; i++) {
      const started = performance.now();
      const token = await story.append(pick);
      const passed = performance.now() - started;
      speed.tokens += 1;
      speed.seconds += passed / 1000;
      ended = story.ended;
      drawToken(token);
      drawState();
      at("story").scrollTop = at("story").scrollHeight;
      await pause(at("fast").checked ? 0 : WATCHABLE - passed);
    }
    say(ended ? "The entry ends here. Write begins another one." : stopped ? "Stopped." : "Ready.");
    at("heard").textContent = story.tokens
      .slice(first)
      .map((token) => token.text)
      .join("");
  } finally {
    writing = false;
    drawState();
  }
}

// one thing after the other: a step of the model is never begun while another one runs
let queue = Promise.resolve();
const inTurn = (action) => {
  queue = queue.then(action).catch((error) => fail(`The model stopped: ${error.message ?? error}`));
  return queue;
};

function restart(prompt) {
  stopped = true;
  return inTurn(async () => {
    [looked, pinned] = [null, false];
    story.begin(prompt);
    await story.catchUp();
    drawStory();
    say("Ready.");
  });
}

function stop() {
  stopped = true;
}

function start() {
  if (writing) stop();
  else inTurn(() => write(Number(at("limit").value)));
}

function fit() {
  const field = at("prompt");
  field.style.height = "auto";
  // with its border
  field.style.height = `${field.scrollHeight + field.offsetHeight - field.clientHeight}px`;
}

function listen() {
  at("write").addEventListener("click", start);
  at("step").addEventListener("click", () => inTurn(() => write(1)));
  at("clear").addEventListener("click", () => restart(at("prompt").value));
  at("prompt").addEventListener("input", () => {
    fit();
    restart(at("prompt").value);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!writing) start();
    } else if (event.key === "Escape") {
      stop();
      look(null);
    }
  });
  for (const word of WORDS) {
    const button = made("button", { textContent: word.trim() });
    button.addEventListener("click", () => {
      at("prompt").value = word;
      fit();
      restart(word);
    });
    document.querySelector(".examples").append(button);
  }
  at("choices").addEventListener("click", ({ target }) => {
    const id = Number(target.closest("button")?.dataset.id ?? Number.NaN);
    if (Number.isNaN(id)) return;
    const index = looked;
    inTurn(async () => {
      if (index !== null) story.cut(index);
      drawStory();
      await write(1, () => id);
    });
  });
  for (const input of document.querySelectorAll("[name=mode], #temperature, #limit")) {
    input.addEventListener("input", () => {
      at("degrees").textContent = Number(at("temperature").value).toFixed(1);
      at("most").textContent = at("limit").value;
      if (!writing) drawState();
    });
  }
  const index = (element) => [...at("story").children].indexOf(element) - 1;
  at("story").addEventListener("pointerover", ({ target }) => {
    if (!pinned && target.matches(".token, .end")) look(index(target));
  });
  at("story").addEventListener("pointerleave", () => {
    if (!pinned) look(null);
  });
  at("story").addEventListener("click", ({ target }) => {
    const token = target.matches(".token, .end");
    look(token ? index(target) : null, token);
  });
  at("story").addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !story.tokens.length) return;
    event.preventDefault();
    const next = (looked ?? story.tokens.length) + move;
    look(next < story.tokens.length ? Math.max(next, 0) : null, next < story.tokens.length);
    // who does not see the bars hears them
    const rows = [...at("choices").children].map((row) => [...row.firstChild.children].map((it) => it.textContent));
    at("heard").textContent = `${at("choices-title").textContent}: ${rows.map((row) => row.join(" ")).join(", ")}`;
  });
  addEventListener("resize", fit);
}

if (!missing.length) {
  try {
    // for the console: writer.tokenizer.encode("…"), writer.story.ids
    window.writer = await open();
    for (const id of ["prompt", "write", "step", "clear"]) at(id).disabled = false;
    listen();
    fit();
    drawStory();
    say("Ready.");
  } catch (error) {
    fail(`The model could not be started: ${error.message ?? error}`);
    // for the console
    throw error;
  }
}
