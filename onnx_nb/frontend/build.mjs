/** Bundles entry.ts with its stylesheet into ../static/widget.js, and stub.ts into ../static/stub.js. */

import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const options = {
  absWorkingDir: here("."),
  entryPoints: { widget: "entry.ts", stub: "stub.ts" },
  outdir: here("../static"),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  plugins: [
    {
      // a stylesheet and what it imports are one text in the bundle
      name: "css as text",
      setup({ onLoad }) {
        onLoad({ filter: /\.css$/ }, async ({ path }) => {
          const { outputFiles } = await build({ entryPoints: [path], bundle: true, minify: true, write: false });
          return { contents: outputFiles[0].text, loader: "text" };
        });
      },
    },
  ],
  logLevel: "info",
};

if (process.argv.includes("--watch")) await (await context({ ...options, sourcemap: "inline" })).watch();
else await build(options);
