/** The keyboard stays in a view when what it was on goes away: a button that did its work, a page that was turned. */

/** Elements that take the focus if nothing around the one that went away does. */
const HOME = ["canvas[tabindex]", "[role=grid][tabindex]", "button:not([disabled])"];

/** Keeps the focus in the view: keys without it are commands to the notebook, which may delete the cell. */
export function keepFocus(root: HTMLElement): void {
  /** what has the keyboard, and what is around it */
  let held: readonly HTMLElement[] = [];
  const gone = (element: HTMLElement): boolean =>
    !element.isConnected || element.getClientRects().length === 0 || element.matches(":disabled");
  const back = (): void => {
    const [last] = held;
    if (last === undefined || !root.isConnected || !gone(last)) return;
    const document_ = root.getRootNode() as Document | ShadowRoot;
    const { activeElement } = document_;
    // elsewhere by now
    if (activeElement !== null && activeElement !== document.body && activeElement !== last) return;
    const around = held.slice(1).find((each) => each.hasAttribute("tabindex") && root.contains(each) && !gone(each));
    const home = HOME.map((selector) => root.querySelector<HTMLElement>(selector)).find((each) => each !== null);
    (around ?? home)?.focus({ preventScroll: true });
  };
  root.addEventListener("focusin", (event) => {
    const path = event.composedPath().filter((each) => each instanceof HTMLElement);
    held = path.slice(0, path.indexOf(root));
  });
  root.addEventListener("focusout", (event) => {
    if (event.relatedTarget !== null) return;
    const left = held;
    // the page is clicked somewhere else, or what had the focus is about to go
    setTimeout(() => {
      const [last] = left;
      if (held === left && last !== undefined && !gone(last)) held = [];
    });
  });
  new MutationObserver(back).observe(root, {
    subtree: true,
    childList: true,
    attributes: true,
    attributeFilter: ["hidden", "disabled"],
  });
}
