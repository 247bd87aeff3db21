/** Bundles widget.ts, pairs.ts and results.ts, each with its stylesheet, into one file each of ../static: what the Python package carries. */

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build, context, transform } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const options = {
  absWorkingDir: here("."),
  entryPoints: ["widget.ts", "pairs.ts", "results.ts"],
  outdir: here("../static"),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  plugins: [
    {
      // a stylesheet is text in the bundle, minified as the rest
      name: "css as text",
      setup({ onLoad }) {
        onLoad({ filter: /\.css$/ }, async ({ path }) => {
          const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true });
          return { contents: code, loader: "text" };
        });
      },
    },
  ],
  logLevel: "info",
};

if (process.argv.includes("--watch")) await (await context({ ...options, sourcemap: "inline" })).watch();
else await build(options);
