// @vitest-environment jsdom

import { beforeEach, expect, it, vi } from "vitest";
import type { GraphHost } from "../protocol/host.ts";
import type { createHints } from "./hints.ts";
import { FakeHost, furnish, stop } from "./testing.ts";

let create: typeof createHints;

/** Opens another page of the same browser. */
async function reload(): Promise<void> {
  vi.resetModules();
  create = (await import("./hints.ts")).createHints;
}
const countIn = (host: GraphHost): number => create(host, stop.signal).element.childElementCount;

beforeEach(async () => {
  furnish();
  localStorage.clear();
  await reload();
});

it("are in the first live graph of each page, until they are closed or something is extracted", async () => {
  expect(countIn(Object.assign(new FakeHost(), { live: false })), "a saved page").toBe(0);
  expect(countIn(Object.assign(new FakeHost(), { canExtract: false }))).toBe(0);
  expect([countIn(new FakeHost()), countIn(new FakeHost())]).toEqual([3, 0]);
  await reload();
  const { element, end } = create(new FakeHost(), stop.signal);
  expect(element.getAttribute("aria-hidden")).toBe("true");
  expect(element.querySelector("button")?.tabIndex).toBe(-1);
  end();
  expect(element.childElementCount).toBe(0);
  await reload();
  expect(countIn(new FakeHost())).toBe(0);
});

it("are not shown where a page may store nothing", () => {
  vi.stubGlobal("localStorage", {
    getItem(): never {
      throw new DOMException("forbidden", "SecurityError");
    },
  });
  expect(countIn(new FakeHost())).toBe(0);
  vi.unstubAllGlobals();
});
