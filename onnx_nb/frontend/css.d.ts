/** esbuild imports a stylesheet as text (see build.mjs). */
declare module "*.css" {
  const text: string;
  export default text;
}

/** And a drawing. */
declare module "*.svg" {
  const text: string;
  export default text;
}
