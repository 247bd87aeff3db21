/** Creates elements in one call. Text is added as text nodes only, so nothing from a model is ever parsed as HTML. */

type Child = Node | string | null;

/** Attributes of an element; `false` omits one, `true` sets it to "", or to "true" if it is an `aria-` attribute. */
export interface Properties {
  readonly data?: Readonly<Record<string, string>>;
  readonly style?: Readonly<Record<string, string>>;
  readonly [attribute: string]: string | number | boolean | undefined | Readonly<Record<string, string>>;
}

type Tag<S extends string> = S extends `${infer T}.${string}` ? T : S;
type ElementOf<S extends string> = Tag<S> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag<S>] : never;

/** Returns an element with its classes, attributes and children: `el("p.onnx-nb-dim", { title }, "text")`. */
export function el<S extends string>(spec: S, properties: Properties, ...children: readonly Child[]): ElementOf<S>;
export function el<S extends string>(spec: S, ...children: readonly Child[]): ElementOf<S>;
export function el(spec: string, first: Properties | Child = null, ...children: readonly Child[]): HTMLElement {
  const [tag, ...classes] = spec.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.className = classes.join(" ");
  if (first === null || typeof first === "string" || first instanceof Node) {
    if (first !== null) element.append(first);
  } else setProperties(element, first);
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

function setProperties(element: HTMLElement, { data, style, ...attributes }: Properties): void {
  for (const [key, value] of Object.entries(data ?? {})) element.dataset[key] = value;
  for (const [key, value] of Object.entries(style ?? {})) element.style.setProperty(key, value);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || (value === false && !key.startsWith("aria-"))) continue;
    element.setAttribute(key, value === true && !key.startsWith("aria-") ? "" : String(value));
  }
}

/** Listens until the signal aborts; `options` may be the signal. */
export function on<K extends keyof HTMLElementEventMap>(
  target: HTMLElement,
  type: K,
  options: AbortSignal | (AddEventListenerOptions & { readonly signal: AbortSignal }),
  listener: (event: HTMLElementEventMap[K]) => void,
): void {
  target.addEventListener(type, listener, options instanceof AbortSignal ? { signal: options } : options);
}

/** Creates a list of texts to choose from. */
export function choice(label: string, texts: readonly string[], changed: (at: number) => void, signal: AbortSignal) {
  const options = texts.map((text) => el("option", text));
  const select = el("select.onnx-nb-field.onnx-nb-choice", { "aria-label": label }, ...options);
  on(select, "change", signal, () => changed(select.selectedIndex));
  on(select, "keydown", signal, (event) => event.stopPropagation()); // keys are not commands to the notebook
  return select;
}

/** Returns a field for a short text: Enter calls `done` with it, Escape with null; no key is a command to the notebook. */
export function textField(
  label: string,
  value: string,
  done: (text: string | null) => void,
  signal: AbortSignal,
  properties: Properties = {},
): HTMLInputElement {
  const field = el("input.onnx-nb-field", { type: "text", "aria-label": label, spellcheck: "false", ...properties });
  field.value = value;
  on(field, "keydown", signal, (event) => {
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    done(event.key === "Enter" ? field.value.trim() : null);
  });
  return field;
}

/** Returns a field for the size of a dimension, which reports what was entered. */
export function sizeField(name: string, change: () => void, signal: AbortSignal, properties: Properties) {
  const label = `Size of ${elide(name, 60)}`;
  const field = el("input.onnx-nb-field", { "aria-label": label, ...properties });
  on(field, "change", signal, change);
  on(field, "keydown", signal, (event) => event.stopPropagation()); // digits are not commands to the notebook
  return field;
}

export function onAbort(signal: AbortSignal, listener: () => void): void {
  signal.addEventListener("abort", listener, { once: true });
}

/** Calls a listener with each new size of some elements, and with the first. */
export function onResize(elements: readonly Element[], signal: AbortSignal, listener: () => void): void {
  const observer = new ResizeObserver(listener);
  for (const element of elements) observer.observe(element);
  onAbort(signal, () => observer.disconnect());
}

/** Calls a listener now, and whenever `data-state` of some elements changes. */
export function onState(elements: readonly HTMLElement[], signal: AbortSignal, listener: () => void): void {
  const observer = new MutationObserver(listener);
  for (const element of elements) observer.observe(element, { attributes: true, attributeFilter: ["data-state"] });
  onAbort(signal, () => observer.disconnect());
  listener();
}

/** Handles keys without Ctrl, Command or Alt; none that is typed in the element is a command to the notebook. */
export function onKeys(
  element: HTMLElement,
  keys: Readonly<Record<string, ((event: KeyboardEvent) => unknown) | undefined>>,
  signal: AbortSignal,
): void {
  on(element, "keydown", signal, (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const act = event.target === element ? keys[event.key] : undefined;
    if (act === undefined) return;
    event.preventDefault();
    act(event);
  });
}

/** Handles letters before what is inside does, except where a person types; no plain key goes on to the notebook. */
export function onLetters(root: HTMLElement, letters: Readonly<Record<string, () => void>>, signal: AbortSignal): void {
  const isPlain = (event: KeyboardEvent): boolean => !event.ctrlKey && !event.metaKey && !event.altKey;
  on(root, "keydown", { signal, capture: true }, (event) => {
    const act = letters[event.key.toLowerCase()];
    if (act === undefined || !isPlain(event) || (event.target as Element).matches("input, textarea, select")) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  on(root, "keydown", signal, (event) => isPlain(event) && event.stopPropagation());
}

/** Moves a tooltip beside a point, inside of what is `width` and `height` pixels large. */
export function placeTooltip(tooltip: HTMLElement, x: number, y: number, width: number, height: number): void {
  const { offsetWidth: w, offsetHeight: h } = tooltip;
  tooltip.style.left = `${Math.max(4, Math.min(x + 14, width - w - 4))}px`;
  tooltip.style.top = `${y + 18 + h > height ? Math.max(0, y - h - 10) : y + 18}px`;
}

/** Returns a function that focuses the element of the same label, or else `home`, after a panel was filled again. */
export function rememberFocus(root: HTMLElement, home: () => HTMLElement | null): () => void {
  const { activeElement } = root.getRootNode() as Document | ShadowRoot;
  if (activeElement == null || activeElement === root || !root.contains(activeElement)) return () => undefined;
  const labelOf = (element: Element): string => element.getAttribute("aria-label") ?? element.textContent;
  const label = labelOf(activeElement);
  return () => {
    const candidates = [...root.querySelectorAll<HTMLElement>("[aria-label], button")];
    const twin = candidates.find((element) => labelOf(element) === label && !element.matches(":disabled"));
    (twin ?? home())?.focus({ preventScroll: true });
  };
}

/** Handles the result or the error of a promise; ignores both once the signal has aborted. */
export function settle<T>(
  promise: Promise<T>,
  signal: AbortSignal,
  done: (value: T) => void,
  fail: (error: unknown) => void,
): void {
  promise.then(
    (value) => signal.aborted || done(value),
    (error: unknown) => signal.aborted || fail(error),
  );
}

export function button(
  text: string,
  press: (event: MouseEvent) => void,
  signal: AbortSignal,
  properties: Properties = {},
): HTMLButtonElement {
  const classes = `onnx-nb-btn ${properties.class ?? ""}`.trimEnd();
  const element = el("button", { ...properties, type: "button", class: classes }, text);
  on(element, "click", signal, press);
  return element;
}

/** Text, title, whether it is the one in use, and what it does. */
type Toggle = readonly [text: string, title: string, isOn: boolean, press: () => void];

/** Returns a row of buttons of which one is in use. */
export function toggleRow(label: string, toggles: readonly Toggle[], signal: AbortSignal): HTMLElement {
  const buttons = toggles.map(([text, title, isOn, press]) =>
    button(text, press, signal, { class: "onnx-nb-small", title, "aria-pressed": isOn }),
  );
  return el("div.onnx-nb-row", { role: "group", "aria-label": label }, ...buttons);
}

/** Returns a button that shows the rest of a long list, once. */
export function moreButton(count: number, show: () => void): HTMLButtonElement {
  const element = el("button.onnx-nb-link", { type: "button" }, `show all ${count.toLocaleString("en")}`);
  element.addEventListener("click", () => {
    element.remove();
    show();
  });
  return element;
}

/** Returns a button that copies `text` to the clipboard and confirms it. */
export function copyButton(text: () => string, signal: AbortSignal, name = "Copy"): HTMLButtonElement {
  const press = async (): Promise<void> => {
    element.textContent = (await copy(text())) ? "Copied" : "Copy failed";
    setTimeout(() => element.replaceChildren(name), 1200);
  };
  const element = button(name, () => void press(), signal, { class: "onnx-nb-small" });
  return element;
}

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // no permission or no secure context: the old API needs neither
    const area = el("textarea", { "aria-hidden": "true", style: { position: "fixed", opacity: "0" } });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Returns whether this element has the focus, even inside a shadow root. */
export function hasFocus(element: Element): boolean {
  return (element.getRootNode() as Document | ShadowRoot).activeElement === element;
}

/** Returns one line of at most `limit` characters: line breaks and tabs become marks, the middle is omitted. */
export function elide(text: string, limit: number): string {
  const line = (text.length > 4 * limit ? `${text.slice(0, 2 * limit)}…${text.slice(-2 * limit)}` : text)
    .replace(/\r\n?|\n/g, "⏎")
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are made visible here
    .replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "·");
  const characters = Array.from(line);
  if (characters.length <= limit) return line;
  const tail = Math.floor((limit - 1) * 0.6);
  return `${characters.slice(0, limit - 1 - tail).join("")}…${characters.slice(characters.length - tail).join("")}`;
}

/** Returns a name that may break after a slash, a dot or an underscore. */
export function breakable(name: string): (Node | string)[] {
  return name.split(/(?<=[/._])(?=[^/._])/).flatMap((part, at) => (at === 0 ? [part] : [el("wbr"), part]));
}

/** Returns a name, type or number as code, with the whole text in its tooltip. */
export function mono(text: string, limit = 60): HTMLElement {
  return el("span.onnx-nb-mono", { title: text.slice(0, 4000) }, ...breakable(elide(text, limit)));
}

/** Returns the head of a pane: what it is about, a button that copies the name, and the name. */
export function paneHead(kind: string, name: string, signal: AbortSignal): HTMLElement[] {
  const copyName = copyButton(() => name, signal, "Copy name");
  return [
    el("div.onnx-nb-dim", kind, copyName),
    el("h4.onnx-nb-mono", { title: name.slice(0, 4000) }, ...breakable(elide(name, 200) || "(unnamed)")),
  ];
}

export type Fact = readonly [label: string | Node, fact: string | Node];

/** Returns labeled facts; omits empty ones. */
export function facts(rows: readonly Fact[], classes = ""): HTMLElement {
  const list = el(`dl.onnx-nb-rows${classes}`);
  for (const [label, fact] of rows) {
    if (fact === "") continue;
    const name = typeof label === "string" ? elide(label, 40) : label;
    list.append(el("dt", name), el("dd", typeof fact === "string" ? mono(fact, 300) : fact));
  }
  return list;
}

/** Returns an element of an SVG picture. */
export function svg(tag: string, attributes: Readonly<Record<string, string>>, ...children: Node[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Returns an element whose text screen readers read, and a function that announces a sentence in it. */
export function createAnnouncer() {
  const element = el("div.onnx-nb-live", { "aria-live": "polite" });
  return { element, announce: (text: string): void => element.replaceChildren(elide(text, 300)) };
}

/** Returns a signal for each filling of a panel and aborts the previous one, so that listeners do not pile up. */
export function fillings(signal: AbortSignal): () => AbortSignal {
  let current = new AbortController();
  onAbort(signal, () => current.abort());
  return () => {
    current.abort();
    current = new AbortController();
    if (signal.aborted) current.abort();
    return current.signal;
  };
}
