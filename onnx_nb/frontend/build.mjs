/** Bundles widget.ts and its stylesheet into ../static/widget.js, the one file that the Python package carries. */

import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const options = {
  absWorkingDir: here("."),
  entryPoints: ["widget.ts"],
  outfile: here("../static/widget.js"),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  loader: { ".css": "text" },
  logLevel: "info",
};

if (process.argv.includes("--watch")) await (await context({ ...options, sourcemap: "inline" })).watch();
else await build(options);
