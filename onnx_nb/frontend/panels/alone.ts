/**
 * What a graph that stands alone has: submodels are cut out of it and tensors looked at. Handed in, so that the bundle
 * of two graphs side by side, of which nothing is cut out, need not carry it.
 */

import { createExtractBar } from "./extractbar.ts";
import { createBeside } from "./submodelpane.ts";
import { createValues } from "./values.ts";

export const alone = { createBeside, createExtractBar, createValues } as const;

export type Alone = typeof alone;
